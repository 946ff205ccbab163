-- park.lua: add an entry to the parked entries of a key that another request has. An entry that is
-- parked again keeps its place, and no longer counts as woken.
-- KEYS[1]=hash KEYS[2]=parked entries KEYS[3]=woken entries
-- ARGV: 1 entry, 2 maximum number of entries, 3 retention ms of all entries, 4 locker id
-- Returns one of
--   {0} no request has the key; nothing was written
--   {1, number of entries, parked for µs: the oldest} full
--   {2, number of older entries, number of entries, parked for µs: this one, parked for µs: the
--     oldest} parked
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/pass.lua
-- include parts/parked.lua
local entry, keep = ARGV[1], tonumber(ARGV[3])
local k = load(KEYS[1], true)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
if not k.live then return {0} end
call('ZCARD', KEYS[3]) -- before all writes: a set of another type ends the script here
local since, count = call('ZSCORE', KEYS[2], entry), call('ZCARD', KEYS[2])
if not since then
  if count >= tonumber(ARGV[2]) then
    local _, age = oldest(KEYS[2])
    return {1, count, age}
  end
  since, count = now, count + 1
  call('ZADD', KEYS[2], now, entry) -- first, because maxmemory may refuse it
end
if call('PTTL', KEYS[2]) < keep then call('PEXPIRE', KEYS[2], keep) end
call('ZREM', KEYS[3], entry) -- planted:parked-in-its-place
fields(KEYS[1], 's') -- a string becomes a hash
if k.p ~= ARGV[4] then call('HSET', KEYS[1], 'p', ARGV[4]) end
outlive(parked)
local _, age = oldest(KEYS[2])
return {2, call('ZRANK', KEYS[2], entry), count, parked_for(since), age}
