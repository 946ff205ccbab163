-- number.lua: a number of the hash. A missing field is 0. nil is a value that no script writes: text, nan, a negative number, or one
-- above most. Up to exact Lua counts on without rounding: 2^53 is 9.007e15, and a block of tokens fits in between.
local exact = 9e15
local function number(v, most)
  if not v then return 0 end
  local n = tonumber(v)
  if n and n >= 0 and n <= most then return n end
end

