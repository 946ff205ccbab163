-- pause.lua: let no request for the key be granted for a time, or end that. What is held stays held.
-- length of the pause in µs, 0 ends it · reason · id of this pause · reservation µs · channels: their
--   prefix · counts_all: PUBLISH counts all receivers (1|0) · wake: notification for the locker that
--   parked the last entry, sent if parked entries may fit after the end of the pause
-- Returns 1, also for a repeat · more, see share_member.lua
-- or the error BADFIELD and the name of a field that cannot be read.
-- Of two pauses the one that ends later counts. A free or reserved key cools until the end. The end of a
-- pause also ends a cooldown that would have ended before it.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/rate.lua
-- include parts/shares.lua
local hash, queue, shares = unpack(KEYS)
local length, reason, id, reservation, channels, counts_all, wake = unpack(ARGV)
length = tonumber(length)
local key, peers = {hash = hash, queue = queue, shares = shares}, {channels = channels, counts_all = counts_all == '1'}
local k = load_shares(key)
if k.more then return more end
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
if string.find(k.ended, id, 1, true) then return 1 end -- a repeat: the key may have been resumed or paused since
pass_phase(key, k, reservation, peers)
local now = k.now
if length == 0 then
  local ended = k.paused
  call('HDEL', hash, 'y')
  k.paused = 0
  if ended > 0 and k.live and k.state == cooling and k.ends <= ended then
    k.live = free(hash, queue, reservation, peers)
  elseif ended > 0 and k.state == shared and not k.revoked then
    serve(key, k, '', reservation, peers)
  end
  if ended > 0 and k.parking_locker and (not k.live or k.state == shared and not k.revoked) and call('ZCARD', queue) == 0 then -- planted:pause-end-wakes
    notify(peers, k.parking_locker, wake)
  end
elseif now + length > k.paused then -- planted:later-pause-counts
  local ends = now + length
  call('HSET', hash, 'y', string.format('%.0f %.0f ', ends, length) .. reason)
  if k.state == '' or k.state == reserved or k.state == cooling and (not k.live or k.ends < ends) then
    call('HDEL', hash, 'h', 'o')
    call('HSET', hash, 's', cooling, 'x', ends, 'd', length)
    announce(queue, ends, now, peers)
  end
  outlive(hash, math.ceil(length / 1000) + minute_ms)
end
remember(hash, k.ended, id)
return 1
