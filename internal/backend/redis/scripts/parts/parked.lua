-- parked.lua
local marks_ttl = 10000 -- ms: the longest time for which an entry counts as woken

-- Returns how long an entry has been parked, in µs. It is 0 if the clock was set back. For a score
-- that no script writes, such as inf, it is at most now, because a reply cannot contain a greater
-- number.
local function parked_for(since, now) return math.min(math.max(now - since, 0), now) end

-- Returns the oldest parked entry of a key, and how long it has been parked.
local function oldest(parked, now)
  local first = call('ZRANGE', parked, 0, 0, 'WITHSCORES')
  return first[1] or '', first[2] and parked_for(first[2], now) or 0
end
