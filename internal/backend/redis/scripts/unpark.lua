-- unpark.lua: remove parked entries, and mark the oldest of the others as woken.
-- KEYS[1]=hash KEYS[2]=parked entries KEYS[3]=woken entries
-- ARGV: 1 wanted number of woken entries, including those that are woken already,
--       2 prefix: only entries that begin with it are woken and counted,
--       3 µs for which an entry counts as woken,
--       4 time of a mark: remove only entries with a mark that is not newer, or 0: remove all listed
--         entries, 5… entries to remove
-- Returns {number of removed entries, parked for µs: the oldest removed entry, number of entries
-- that are left, parked for µs: the oldest of those, time of the new marks}, followed by the newly
-- marked entries, oldest first. For a repeat, enough entries may be marked already. Then it returns
-- none.
-- include parts/lease.lua
-- include parts/parked.lua
local want, prefix, woken_time, newest = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
clock()
local marks = call('ZRANGE', KEYS[3], 0, 999, 'WITHSCORES') -- before all writes: a set of another type ends the script here
local removed, age = 0, 0
for i = 5, #ARGV do
  local since = call('ZSCORE', KEYS[2], ARGV[i])
  local mark = tonumber(call('ZSCORE', KEYS[3], ARGV[i]) or 0)
  local ours = mark <= newest and mark > now - marks_ttl * 1000
  if since and (newest == 0 or ours) then -- planted:parked-again
    call('ZREM', KEYS[2], ARGV[i])
    call('ZREM', KEYS[3], ARGV[i])
    removed, age = removed + 1, math.max(age, parked_for(since))
  end
end
local count = call('ZCARD', KEYS[2])
if count == 0 then
  redis.pcall('HDEL', KEYS[1], 'p') -- pcall, because a plain hold is a string without fields
  call('DEL', KEYS[3])
  return {removed, age, 0, 0, now}
end

-- Three kinds of marks do not count and are removed: marks of entries that are no longer parked,
-- old marks, and marks in the future. A clock that was set back causes the last kind.
local marked, woken = {}, 0
local function begins(entry) return string.sub(entry, 1, #prefix) == prefix end
for i = 1, #marks, 2 do
  local entry, at = marks[i], tonumber(marks[i + 1])
  if at > now or at <= now - woken_time or not call('ZSCORE', KEYS[2], entry) then
    call('ZREM', KEYS[3], entry)
  else
    marked[entry] = true
    if begins(entry) then woken = woken + 1 end
  end
end

-- The script examines only the 1,000 oldest entries, so that many entries with another prefix do
-- not block the server. In most cases the first 100 are enough.
local _, oldest_age = oldest(KEYS[2])
local reply = {removed, age, count, oldest_age, now}
for from = 0, 900, 100 do
  if woken >= want or from >= count then break end
  for _, entry in ipairs(call('ZRANGE', KEYS[2], from, from + 99)) do
    if woken < want and not marked[entry] and begins(entry) then
      call('ZADD', KEYS[3], now, entry)
      reply[#reply + 1] = entry
      woken = woken + 1
    end
  end
end
if #reply > 5 then call('PEXPIRE', KEYS[3], marks_ttl) end
return reply
