-- restrict.lua: bound the limit and the rate of the requests for a key for a time, or end that. What is
-- held stays held. The bucket of the restriction is full at first.
-- length of the restriction in µs, 0 ends it · text: its limit, n, period µs, burst and reason, see
--   rate.lua · id of this restriction · reservation µs · channels: their prefix · counts_all: PUBLISH
--   counts all receivers (1|0) · wake: notification for the locker that parked the last entry, sent if
--   parked entries may fit
-- Returns 1, also for a repeat · more, see share_member.lua
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/rate.lua
-- include parts/shares.lua
local hash, queue, shares, flow = unpack(KEYS)
local length, text, id, reservation, channels, counts_all, wake = unpack(ARGV)
length = tonumber(length)
local key, peers = {hash = hash, queue = queue, shares = shares, flow = flow}, {channels = channels, counts_all = counts_all == '1'}
local k = load_shares(key)
if k.more then return more end
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
if string.find(k.ended, id, 1, true) then return 1 end -- a repeat: another restriction may have followed
pass_phase(key, k, reservation, peers)
call('HDEL', flow, 'z', 'y') -- planted:restriction-replaced
if length > 0 then
  call('HSET', flow, 'z', string.format('%.0f %.0f ', k.now + length, length) .. text)
  keep_flow(flow, math.ceil(length / 1000) + minute_ms) -- planted:restriction-ttl
end
k.buckets, k.restriction = nil, nil
if not k.revoked then serve_rated(key, k, '', reservation, peers) end -- requests in the queue may fit now
if k.parking_locker and k.paused == 0 and (not k.live or k.state == shared and not k.revoked) and call('ZCARD', queue) == 0 then -- planted:restriction-wakes
  notify(peers, k.parking_locker, wake)
end
remember(hash, k.ended, id)
return 1
