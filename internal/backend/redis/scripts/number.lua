-- number.lua reads a number of the hash. A missing field is 0. The result is nil for a value that
-- no script writes: text, nan, a negative number, or one above limit. Lua adds without rounding up
-- to 2^53, 9.007e15. A block of tokens fits between exact and that.
local exact = 9e15
local function number(v, limit)
  if not v then return 0 end
  local n = tonumber(v)
  if n and n >= 0 and n <= limit then return n end
end

