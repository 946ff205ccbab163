-- rotate.lua: release an exclusive key and request it again for the next waiter of the same
-- process. Other processes in the queue get the key first.
-- grant_id · token: the last one used · keep_ms: how long the free key is kept · repeated: remember
--   the grant (1|0) · reservation µs · channels: their prefix · counts_all: PUBLISH counts all
--   receivers (1|0) · then for the next request as in acquire.lua: request, locker, lease, enqueue,
--   holder, retention_ms, queue_ms, floor, waits
-- Returns a list: released (1) or not the holder, no effect (0), followed by the elements that
-- acquire.lua would return for the next request
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/queue.lua
local hash, queue = unpack(KEYS)
local grant_id, token, keep_ms, repeated, reservation, channels, counts_all, request, locker, lease, enqueue, holder, retention_ms, queue_ms, floor, waits = unpack(ARGV)
local peers = {channels = channels, counts_all = counts_all == '1'}
local k = load(hash)
if k.state ~= held or k.owner ~= grant_id then
  -- A repeat returns the grant of the next request, and never adds that request to the queue again.
  if repeated == '1' then remember(hash, k.ended, grant_id) end
  if k.state == held and k.owner == request and k.live and not k.revoked then
    call('HDEL', hash, 'h') -- first, see key.lua; a write, because WAIT counts only the writes of its own connection
    call('HSET', hash, 'h', request)
    return {0, 1, k.token, 1, k.abandoned and 1 or 0, k.parking_locker and 1 or nil}
  end
  return {0, 0, 0, 0, '', call('ZCARD', queue)} -- busy with 0 µs remaining, so the process sends its request again at once
end
call('PEXPIRE', hash, keep_ms) -- first, see key.lua
call('HDEL', hash, 'a', 'm', 'g')
call('HSET', hash, 'f', token)
if repeated == '1' then remember(hash, k.ended, grant_id) elseif k.ended ~= '' then outlive(hash, minute_ms) end
if k.parking_locker then outlive(hash, parked_ttl) end
local other = free(hash, queue, reservation, peers)
if string.find(k.ended, request, 1, true) then return {1, 5} end -- a late duplicate, and the next request has ended too
if other == '' then -- the key is paused
  if enqueue == '1' then enter_queue(queue, locker .. request, k.now, queue_ms, locker, waits) end
  return {1, 0, k.paused - k.now, 0, '', call('ZCARD', queue), '', '', '', 0, place(queue, locker .. request), 0, k.pause_reason}
end
if other then
  if enqueue == '1' then enter_queue(queue, locker .. request, k.now, queue_ms, locker, waits) end
  return {1, 0, tonumber(reservation), 0, '', call('ZCARD', queue)}
end
local greatest = math.max(tonumber(token), k.token, floor - 1) -- k.token is greater if this is a late duplicate and its id was granted again
return {1, 1, grant(hash, greatest, nil, k.now, request, locker, lease, holder, retention_ms), 1, 0, k.parking_locker and 1 or nil}
