-- unpark.lua: remove parked entries, and mark the oldest of the others as woken.
-- wanted number of woken entries, including those that are woken already · prefix: only entries
--   that begin with it are woken and counted · fresh: µs for which an entry is woken after it was
--   marked · marked: time of a mark: remove only entries with a mark that is not newer, or 0:
--   remove all listed entries · skips: number of the prefixes that follow, of entries that are
--   neither woken nor counted · then the entries to remove
-- Returns {number of removed entries, parked for µs: the oldest removed entry, number of entries
-- that are left, parked for µs: the oldest of those, time of the new marks}, followed by the newly
-- marked entries, oldest first. For a repeat, enough entries may be marked already. Then it returns
-- none.
-- include parts/key.lua
-- include parts/parked.lua
local hash, parked, woken = unpack(KEYS)
local wanted, prefix, fresh, marked, skips = unpack(ARGV)
wanted, fresh, marked, skips = tonumber(wanted), tonumber(fresh), tonumber(marked), tonumber(skips)
local now = clock()
local marks = call('ZRANGE', woken, 0, 999, 'WITHSCORES') -- before all writes: a set of another type ends the script here
local removed, age = 0, 0
for i = 6 + skips, #ARGV do
  local entry = ARGV[i]
  local since = call('ZSCORE', parked, entry)
  local mark = tonumber(call('ZSCORE', woken, entry) or 0)
  local ours = mark <= marked and mark > now - marks_ttl * 1000
  if since and (marked == 0 or ours) then -- planted:parked-again
    call('ZREM', parked, entry)
    call('ZREM', woken, entry)
    removed, age = removed + 1, math.max(age, parked_for(since, now))
  end
end
local count = call('ZCARD', parked)
if count == 0 then
  redis.pcall('HDEL', hash, 'p') -- pcall, because a plain hold is a string without fields
  call('DEL', woken)
  return {removed, age, 0, 0, now}
end

-- Three kinds of marks have no effect and are removed: marks of entries that are no longer parked,
-- old marks, and marks in the future. A clock that was set back causes the last kind.
local is_woken, found = {}, 0
local function begins(entry)
  for i = 6, 5 + skips do
    if string.sub(entry, 1, #ARGV[i]) == ARGV[i] then return false end
  end
  return string.sub(entry, 1, #prefix) == prefix
end
for i = 1, #marks, 2 do
  local entry, at = marks[i], tonumber(marks[i + 1])
  if at > now or at <= now - fresh or not call('ZSCORE', parked, entry) then
    call('ZREM', woken, entry)
  else
    is_woken[entry] = true
    if begins(entry) then found = found + 1 end
  end
end

-- The script examines only the 1,000 oldest entries, so that many entries with another prefix do
-- not block the server. In most cases the first 100 are enough.
local _, oldest_age = oldest(parked, now)
local reply = {removed, age, count, oldest_age, now}
for from = 0, 900, 100 do
  if found >= wanted or from >= count then break end
  for _, entry in ipairs(call('ZRANGE', parked, from, from + 99)) do
    if found < wanted and not is_woken[entry] and begins(entry) then
      call('ZADD', woken, now, entry)
      reply[#reply + 1] = entry
      found = found + 1
    end
  end
end
if #reply > 5 then call('PEXPIRE', woken, marks_ttl) end
return reply
