-- release_share.lua: end a share, or withdraw a request for one: its queue entry, its reservation
-- or its share.
-- text of the request, see shares.lua · locker id if the request may be in the queue, otherwise ''
--   · keep_ms: how long the free key is kept · repeated: a duplicate of the acquire may arrive, so
--   remember the id (1|0) · reservation µs · channels: their prefix · counts_all: PUBLISH counts
--   all receivers (1|0) · cooldown µs: the weight of the share counts during it · wake:
--   notification for the locker that parked the last entry, sent if parked entries may fit now, or
--   ''
-- Returns 1 released · {1, 1} released, no request waits, and the key may have parked entries
--   · 0 no share, no effect · more, see share_member.lua
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/rate.lua
-- include parts/shares.lua
local hash, queue, shares = unpack(KEYS)
local text, locker, keep_ms, repeated, reservation, channels, counts_all, cooldown, wake = unpack(ARGV)
cooldown = tonumber(cooldown)
local key, peers = {hash = hash, queue = queue, shares = shares}, {channels = channels, counts_all = counts_all == '1'}
local id, _, weight = share_of(text)
local k = load_shares(key)
local now = k.now
if k.more then return more end
local was_queued = locker ~= '' and call('ZREM', queue, locker .. text) == 1
local own = k.state == shared and call('ZSCORE', shares, text)
local ours = own or k.state == reserved and k.owner == id
if k.bad and k.state == shared then -- only removes the share: an operator must clear the key
  if not own then return 0 end
  call('ZREM', shares, text)
  call('HDEL', hash, id)
  if repeated == '1' then remember(hash, k.ended, id) end
  return 1
end
if own then
  k.weights_held, k.freed = k.weights_held - weight, text
  if cooldown > 0 then
    k.freed = 'c' .. text
    k.length = math.max(k.length, cooldown)
    keep_shares(key, k) -- first, see key.lua
    call('HSET', hash, 'd', k.length)
    if call('ZADD', shares, 'GT', now + cooldown, 'c' .. text) == 0 then k.weights = k.weights - weight end -- a share of an earlier grant of this id cools already
    call('HSET', hash, 'c' .. id, call('HGET', hash, id) or '') -- planted:cooldown-before-the-end
  else
    k.weights = k.weights - weight
  end
  call('ZREM', shares, text)
  call('HDEL', hash, id)
  if k.weights > 0 then
    k.ends = tonumber(call('ZRANGE', shares, -1, -1, 'WITHSCORES')[2]) -- planted:latest-end
    call('HSET', hash, 'c', k.weights, 'u', k.weights_held, 'x', k.ends)
    if k.revoked then end_revocation(key, k) end -- planted:revocation-ends
    keep_cooling(key, k)
  end
end
local waiting = call('ZCARD', queue)
if ours and k.weights <= 0 then
  if repeated ~= '1' and k.ended == '' and not k.parking_locker and not k.abandoned and waiting == 0 and k.paused == 0 and now > math.max(k.greatest, k.token) then -- as in release.lua
    call('DEL', hash)
    return 1
  end
  close_phase(key, k)
  if not k.abandoned then call('PEXPIRE', hash, keep_ms) end
end
if repeated == '1' then
  if ours or not k.bad then remember(hash, k.ended, id) end -- an unreadable hash grants nothing, so its TTL must not be extended
elseif ours and k.state == '' and k.ended ~= '' then
  outlive(hash, minute_ms)
end
if ours and k.state == '' and k.parking_locker then outlive(hash, parked_ttl) end
local served = 0
if k.state == shared and not k.revoked then
  served = serve(key, k, '', reservation, peers) -- planted:share-served
elseif ours and k.state == '' then
  served = reserve(hash, queue, reservation, peers) and 1 or 0
else
  if was_queued and k.live and k.state == cooling then
    announce(queue, k.ends, now, peers)
  elseif was_queued and k.state == '' then
    serve_rated(key, k, '', reservation, peers)
  else
    pass_phase(key, k, reservation, peers)
  end
end
-- Parked entries may fit now, unless the share cools. If the last request in the queue of a shared
-- key is withdrawn, the releases before it did not report the entries.
local room = ours and cooldown == 0 or was_queued and k.state == shared
if not k.parking_locker or served > 0 or not room or k.revoked or k.paused > 0 or call('ZCARD', queue) > 0 then return ours and 1 or 0 end
if wake ~= '' then notify(peers, k.parking_locker, wake) end
return ours and {1, 1} or 0
