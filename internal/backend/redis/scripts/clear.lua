-- clear.lua: free a key that is not held, and forget its record.
-- keep_ms: how long the free key is kept · reservation µs · channels: their prefix · counts_all:
--   PUBLISH counts all receivers (1|0) · seen: the token that inspect.lua returned, 'bad' if the
--   hash could not be read, or '' · seen_done: the key was done then (1|0) · id of this clear
-- Returns 1 cleared, or nothing to clear · 0 held · 2 changed since inspect.lua read it · more, see
--   share_member.lua
-- The greatest token is kept if it can be read. A hold whose end cannot be read is not a hold here,
-- because its holder cannot renew it.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/rate.lua
-- include parts/shares.lua
local hash, queue, shares = unpack(KEYS)
local keep_ms, reservation, channels, counts_all, seen, seen_done, id = unpack(ARGV)
local key, peers = {hash = hash, queue = queue, shares = shares}, {channels = channels, counts_all = counts_all == '1'}
if string.find(load(hash).ended, id, 1, true) then return 1 end -- a repeat: the key may have changed since the first copy
local k = load_shares(key)
if k.more then return more end
call('ZCARD', queue) -- before most writes: a queue of another type ends the script here
pass_phase(key, k, reservation, peers)
if k.swept and k.weights_held > 0 and not k.revoked then serve(key, k, '', reservation, peers) end -- no later request may find that the shares have expired
if seen == 'bad' then
  if not k.bad then return 2 end
elseif seen ~= '' and ((k.state == held and k.token or k.greatest) ~= tonumber(seen) or (k.state == done) ~= (seen_done == '1')) then
  return 2
end
if k.state == held and k.live or k.weights_held > 0 then return 0 end
if k.state == shared then -- all shares cool, or the key cannot be read
  local members, some = {}, call('ZRANGE', shares, 0, share_step - 1, 'WITHSCORES')
  for i = 1, #some, 2 do
    if k.bad and not cools(some[i]) and tonumber(some[i + 1]) > k.now then return 0 end
    members[#members + 1] = some[i]
  end
  k.weights = k.weights - remove_shares(hash, shares, members)
  if members[share_step] then
    if not k.bad then call('HSET', hash, 'c', k.weights) end
    return more
  end
end
if call('PTTL', hash) == -2 then
  remember(hash, '', id) -- otherwise a late duplicate would clear newer data of the key
  return 1
end
call('PEXPIRE', hash, keep_ms)
call('HDEL', hash, 'a', 'm', 'g', 'n', 'r', 'e')
if k.bad then call('HDEL', hash, 't', 'f') end
if k.state == held or k.bad then call('HSET', hash, 'f', k.greatest) end -- an expired hold may have used all its tokens
if k.state == held and k.bad then notify(peers, k.locker, 'v' .. k.owner) end -- the holder then renews at once, and the reply is that its lease is lost
if k.state == shared then call('HDEL', hash, 'c', 'u', 'w') end
if (k.state == reserved or k.closed and k.state == cooling) and not k.bad then
  outlive(hash, math.ceil(math.max(reservation, k.paused - k.now) / 1000) + minute_ms) -- as in reserve
elseif not k.closed or k.bad then -- otherwise pass_phase has served the queue
  free(hash, queue, reservation, peers)
end
if k.parking_locker then outlive(hash, parked_ttl) end
remember(hash, k.ended, id)
return 1
