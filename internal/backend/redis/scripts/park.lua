-- park.lua: add an entry to the parked entries of a key that another request has. An entry that is
-- parked again keeps its place, and is no longer woken.
-- entry · most: maximum number of entries · keep_ms: retention of all entries · locker id ·
--   park_free: park also if no request has the key, because its rate is used up (1|0)
-- Returns one of
--   {0} no request has the key; nothing was written
--   {1, number of entries, parked for µs: the oldest} full
--   {2, number of older entries, number of entries, parked for µs: this one, parked for µs: the
--     oldest} parked
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/parked.lua
local hash, parked, woken = unpack(KEYS)
local entry, most, keep_ms, locker, park_free = unpack(ARGV)
local k = load(hash, true)
local now = k.now
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
if not k.live and park_free ~= '1' then return {0} end
call('ZCARD', woken) -- before all writes: a set of another type ends the script here
local since, count = call('ZSCORE', parked, entry), call('ZCARD', parked)
if not since then
  if count >= tonumber(most) then
    local _, age = oldest(parked, now)
    return {1, count, age}
  end
  since, count = now, count + 1
  call('ZADD', parked, now, entry) -- first, because maxmemory may refuse it
end
if call('PTTL', parked) < tonumber(keep_ms) then call('PEXPIRE', parked, keep_ms) end
call('ZREM', woken, entry) -- planted:parked-in-its-place
fields(hash, 's') -- a string becomes a hash
if k.parking_locker ~= locker then call('HSET', hash, 'p', locker) end
outlive(hash, park_free == '1' and math.max(parked_ttl, tonumber(keep_ms)) or parked_ttl) -- no release follows that would keep it
local _, age = oldest(parked, now)
return {2, call('ZRANK', parked, entry), count, parked_for(since, now), age}
