-- complete.lua: end the hold of a once key and store its record.
-- grant_id · record · keep_ms: its retention · token: the last one used · channels: their prefix ·
--   repeated: a duplicate of the acquire may arrive, so remember the id (1|0) · plain: the grant
--   was a plain hold (1|0): no duplicate of its acquire may exist
-- Returns 1 recorded, now or earlier by this grant · {1, 1} recorded, and the key may have parked
--   entries · 0 stale: another run has begun or finished
-- It also succeeds after the lease expired, provided that no other hold has begun.
local hash, queue = unpack(KEYS)
local grant_id, record, keep_ms, token, channels, repeated, plain = unpack(ARGV)
-- include parts/complete_plain.lua
if plain == '1' then
  local reply = complete_plain(hash, grant_id, record, keep_ms, token)
  if reply then return reply end
end
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
local k = load(hash)
local recorded = k.parking_locker and {1, 1} or 1
if k.state == done and k.completed_by == grant_id then
  call('HDEL', hash, 'e') -- first, see key.lua; a write, because WAIT counts only the writes of its own connection
  call('HSET', hash, 'e', grant_id)
  return recorded
end
if k.state ~= held or k.owner ~= grant_id then -- planted:completion-of-own-hold
  if repeated == '1' then remember(hash, k.ended, grant_id) end
  return 0
end
call('PEXPIRE', hash, keep_ms) -- first, see key.lua
call('HSET', hash, 's', done, 'e', grant_id, 'r', record, 'f', token)
call('HDEL', hash, 'h', 'o', 'x', 'd', 'v', 'a')
local kept = k.parking_locker and parked_ttl or (repeated == '1' or k.ended ~= '') and minute_ms or 0 -- ms
if tonumber(keep_ms) < kept then -- the hash outlives the record, so the record needs its own end
  call('HSET', hash, 'x', k.now + keep_ms * 1000, 'd', keep_ms * 1000)
  call('PEXPIRE', hash, kept)
end
if repeated == '1' then remember(hash, k.ended, grant_id) end
notify_all(queue, channels) -- planted:record-told
call('DEL', queue) -- no waiter will run
return recorded
