-- force_clear.lua: end the lease of a holder that has died, as if it had expired. The next hold takes
-- the key over, with a greater token.
-- token and locker id of the hold, as inspect.lua returned them · silent: time in µs since the
--   lease was granted or last renewed, at least, or 0 · channels: their prefix · counts_all:
--   PUBLISH counts all receivers (1|0) · id of this request · wake: notification for the locker
--   that parked the last entry, sent if no request waits
-- Returns {1} the lease has ended, now or by an earlier copy · {2} the key does not have that hold
--   · {0, µs} granted or renewed more recently; after that time silent has passed
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
local hash, queue = unpack(KEYS)
local token, locker, silent, channels, counts_all, id, wake = unpack(ARGV)
local peers = {channels = channels, counts_all = counts_all == '1'}
local k = load(hash)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
call('ZCARD', queue) -- before all writes: a queue of another type ends the script here
if string.find(k.ended, id, 1, true) then return {1} end -- a repeat: the key may have another holder now
if k.state ~= held or k.token ~= tonumber(token) or k.locker ~= locker then return {2} end -- planted:forced-hold
local early = tonumber(silent) - (k.length - (k.ends - k.now))
if early > 0 then return {0, early} end -- planted:forced-when-silent
-- Without x the lease has ended, even if the clock is set back. The rest stays, so that every script
-- finds an expired hold. The late acquire of this hold must not be granted the key after the takeover.
call('HDEL', hash, 'x') -- first, see key.lua
remember(hash, string.find(k.ended, k.owner, 1, true) and k.ended or k.ended .. k.owner, id)
notify(peers, k.locker, 'v' .. k.owner) -- a living holder then renews at once, and the reply is that its lease is lost
announce(queue, k.now, k.now, peers) -- planted:forced-told
if k.parking_locker and call('ZCARD', queue) == 0 then notify(peers, k.parking_locker, wake) end
return {1}
