-- parked.lua
local marks_ttl = 10000 -- ms: how long an entry counts as woken at most

-- Returns how long an entry has been parked, in µs: 0 if the clock was set back. A score that no script
-- writes gives at most now, because a reply cannot hold a greater number such as inf.
local function parked_for(since) return math.min(math.max(now - since, 0), now) end

-- Returns the oldest parked entry of a key, and how long it has been parked.
local function oldest(entries)
  local first = call('ZRANGE', entries, 0, 0, 'WITHSCORES')
  return first[1] or '', first[2] and parked_for(first[2]) or 0
end
