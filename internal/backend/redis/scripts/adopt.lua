-- adopt.lua: pass a hold to a new grant of another process. The run continues: its number, the
-- fingerprint, the interim answer and the mark of an abandoned hold stay.
-- KEYS[1]=hash
-- ARGV: 1 id of the grant that has the key, 2 id of the new grant, 3 locker id, 4 lease µs,
--       5 holder text, 6 retention ms of an abandoned hold
-- Returns one of
--   {1, token, attempt, abandoned (1|0), may have parked entries (1|0), fingerprint}
--     adopted, now or earlier by the same new grant
--   {0} lost
--   {2} revoked
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/pass.lua
local from, request, lease = ARGV[1], ARGV[2], ARGV[4]
local k = load(KEYS[1], true)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
local mine = k.h == request
if k.s ~= 'h' or not k.live or k.h ~= from and not mine then return {0} end -- planted:adopt-own-hold
if string.find(k.l, request, 1, true) then return {0} end -- a late duplicate: the new grant has already been released
if k.v then return {2} end
local reply = {1, k.t, k.n > 0 and k.n or 1, k.a and 1 or 0, k.p and 1 or 0, k.g}
fields(KEYS[1], 's') -- a string becomes a hash
if mine then -- the reply was lost
  call('HDEL', KEYS[1], 'h') -- first, see renew.lua; a write, because WAIT counts only the writes of its own connection
  call('HSET', KEYS[1], 'h', request)
  if now + tonumber(lease) > k.x then call('HSET', KEYS[1], 'x', now + tonumber(lease), 'd', lease) end
  return reply
end
reply[2] = grant(k.f, nil, false, request, ARGV[3], lease, ARGV[5], ARGV[6])[2]
remember(k.l, from) -- planted:adopted-id-remembered
return reply
