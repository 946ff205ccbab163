-- parked.lua
-- Returns the oldest parked entry of a key, and how long it has been parked, in µs: 0 if the clock was
-- set back.
local function oldest(entries)
  local first = call('ZRANGE', entries, 0, 0, 'WITHSCORES')
  return first[1] or '', first[2] and math.max(now - first[2], 0) or 0
end
