-- adopt.lua: pass a hold to a new grant of another process. The run continues: its number, the
-- fingerprint, the interim answer and the mark of an abandoned hold stay.
-- from: id of the grant that has the key · request: id of the new grant · locker id · lease µs ·
--   holder: its text · retention_ms of an abandoned hold
-- Returns one of
--   {1, token, attempt, abandoned (1|0), may have parked entries (1|0), fingerprint}
--     adopted, now or earlier by the same new grant
--   {0} lost
--   {2} revoked
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/queue.lua
local hash = unpack(KEYS)
local from, request, locker, lease, holder, retention_ms = unpack(ARGV)
local k = load(hash, true)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
local mine = k.owner == request
if k.state ~= held or not k.live or k.owner ~= from and not mine then return {0} end -- planted:adopt-own-hold
if string.find(k.ended, request, 1, true) then return {0} end -- a late duplicate: the new grant has already been released
if k.revoked then return {2} end
local reply = {1, k.token, k.attempts > 0 and k.attempts or 1, k.abandoned and 1 or 0, k.parking_locker and 1 or 0, k.fingerprint}
fields(hash, 's') -- a string becomes a hash
if mine then -- the reply was lost
  call('HDEL', hash, 'h') -- first, see key.lua; a write, because WAIT counts only the writes of its own connection
  call('HSET', hash, 'h', request)
  if k.now + lease > k.ends then call('HSET', hash, 'x', k.now + lease, 'd', lease) end
  return reply
end
reply[2] = grant(hash, k.greatest, nil, k.now, request, locker, lease, holder, retention_ms)
remember(hash, k.ended, from) -- planted:adopted-id-remembered
return reply
