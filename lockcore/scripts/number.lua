-- number.lua reads a number of the hash. A missing field is 0. The result is nil if no script writes such a value:
-- text, nan, a negative number, or one above most. Lua adds without rounding up to 2^53, 9.007e15; a block of tokens
-- fits between exact and that.
local exact = 9e15
local function number(v, most)
  if not v then return 0 end
  local n = tonumber(v)
  if n and n >= 0 and n <= most then return n end
end

