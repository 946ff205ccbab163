-- force_clear.lua: end the lease of a holder that has died, as if it had expired. The next hold takes
-- the key over, with a greater token.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 token and 2 locker id of the hold, as inspect.lua returned them,
--       3 time in µs since the lease was granted or last renewed, at least, or 0,
--       4 channel prefix, 5 PUBLISH counts all receivers (1|0), 6 id of this request,
--       7 notification for the locker that parked the last entry, sent if no request waits
-- Returns {1} the lease has ended, now or by an earlier copy · {2} the key does not have that hold
--   · {0, µs} granted or renewed more recently; after that time ARGV[3] has passed
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/pass.lua
local k = load(KEYS[1])
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
call('ZCARD', KEYS[2]) -- before all writes: a queue of another type ends the script here
if string.find(k.l, ARGV[6], 1, true) then return {1} end -- a repeat: the key may have another holder now
if k.s ~= 'h' or k.t ~= tonumber(ARGV[1]) or k.o ~= ARGV[2] then return {2} end -- planted:forced-hold
local early = tonumber(ARGV[3]) - (k.d - (k.x - now))
if early > 0 then return {0, early} end -- planted:forced-when-silent
-- Without x the lease has ended, even if the clock is set back. The rest stays, so that every script
-- finds an expired hold. The late acquire of this hold must not be granted the key after the takeover.
call('HDEL', KEYS[1], 'x') -- first, see renew.lua
remember(string.find(k.l, k.h, 1, true) and k.l or k.l .. k.h, ARGV[6])
call('PUBLISH', ARGV[4] .. k.o, 'v' .. k.h) -- a living holder then renews at once, and the reply is that its lease is lost
announce(now, ARGV[4], ARGV[5]) -- planted:forced-told
if k.p and call('ZCARD', KEYS[2]) == 0 then call('PUBLISH', ARGV[4] .. k.p, ARGV[7]) end
return {1}
