-- acquire_share.lua: acquire a share of a key for a request, or return why it does not get one.
-- text of the request, see shares.lua · locker id · lease µs · enqueue the request if it does not
--   fit (1|0) · holder: its text · queue_ms: retention of the queue · reservation µs · channels:
--   their prefix · counts_all: PUBLISH counts all receivers (1|0) · waits: see enter_queue, or missing
-- Returns one of
--   {0, remaining µs, held for µs, holder text, queue length, '', locker id, '', weights, place}
--     busy, as in acquire.lua. If the key is shared, remaining is that of the share that ends first. If that
--     share cools, held for is 0, and there is no holder. If the rate decides, a 1 follows, and
--     remaining is the time until the turn of the request. If the key is paused, 0 and the reason
--     follow
--   {1, token, 1, abandoned (1|0), may have parked entries (1|0), phase, time of the grant in µs}
--     granted. With a rate, the cost that calls may have now follows, and µs until they may have 1
--     more
--   {5} the request has ended, or its share was revoked
--   more, see share_member.lua
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/rate.lua
-- include parts/shares.lua
local hash, queue, shares, flow = unpack(KEYS)
local text, locker, lease, enqueue, holder, queue_ms, reservation, channels, counts_all, waits = unpack(ARGV)
lease = tonumber(lease)
local key, peers = {hash = hash, queue = queue, shares = shares, flow = flow}, {channels = channels, counts_all = counts_all == '1'}
local id, limit, weight = share_of(text)
local member = locker .. text
local k = load_shares(key)
local now = k.now
if k.more then return more end
k.bad = k.bad or load_flow(flow, k)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
limit = limit_of(k, limit, weight)
local rates = rates_of(text, k)
pass_phase(key, k, reservation, peers)
local own = k.state == shared and call('ZSCORE', shares, text)
local busy = false
-- Checked before own, because a late duplicate may have entered the queue before its request ended,
-- and may have got a share there.
if string.find(k.ended, id, 1, true) then return {5} end -- planted:late-duplicate-share
if own then
  if k.revoked then return {5} end
elseif k.state == reserved and k.owner == id then -- reserved for this request
elseif k.live and (k.state ~= shared or k.revoked) then
  busy = true -- planted:share-excluded
elseif k.paused > 0 then
  busy = true
elseif rates then
  serve_rated(key, k, id, reservation, peers)
  local first = call('ZRANGE', queue, 0, 0)[1]
  local taken = k.live and k.state ~= shared
  local full = k.weights + weight > limit
  busy = taken or first and first ~= member or full or due(rates) > now
  if busy and not taken and not (k.state == shared and full) then
    if enqueue == '1' then enter_queue(queue, member, now, queue_ms, locker, waits) end
    return busy_rated(key, k, id, member, rates)
  end
elseif k.state == shared then
  if call('ZCARD', queue) > 0 then
    serve(key, k, id, reservation, peers)
    own = call('ZSCORE', shares, text)
    busy = not own and call('ZCARD', queue) > 0 -- planted:share-waits-behind-the-queue
  elseif k.head ~= '' then
    k.head = ''
    call('HDEL', hash, 'w')
  end
  busy = busy or (not own and k.weights + weight > limit) -- planted:share-fits
end

if busy then
  if enqueue == '1' then enter_queue(queue, member, now, queue_ms, locker, waits) end
  see_again(key, k, id)
  if k.state == shared and string.sub(k.head, 1, 26) == id then call('HSET', hash, 'w', id .. ' ' .. string.format('%.0f', now)) end
  local waiting = call('ZCARD', queue)
  if k.paused > 0 and not (k.live and (k.state == held or k.state == reserved)) then
    return {0, paused_for(k), 0, '', waiting, '', '', '', k.weights, place(queue, member), 0, k.pause_reason}
  end
  if k.state == held then return {0, k.ends - now, math.max(now - k.token, 0), k.holder, waiting, '', k.locker} end
  local queue_place = (k.state == cooling or k.weights > k.weights_held) and place(queue, member) or nil
  if k.state ~= shared then return {0, k.ends - now, 0, '', waiting, '', '', '', 0, queue_place} end
  local first = call('ZRANGE', shares, 0, 0, 'WITHSCORES')
  local left = tonumber(first[2]) - now -- the earliest time at which the request may fit
  if cools(first[1]) then return {0, left, 0, '', waiting, '', '', '', k.weights, queue_place} end
  return {0, left, math.max(now - k.token, 0), k.holder, waiting, '', k.locker, '', k.weights, queue_place}
end

-- The request fits. Any request may take a key that is free or whose hold has expired, see grant.
local opens = k.state ~= shared
if opens then -- an operator may have deleted the hash of a phase, and not the set
  local old = call('ZRANGE', shares, 0, share_step - 1)
  remove_shares(hash, shares, old)
  if old[share_step] then return more end
end
local others = call('ZCARD', queue) > 0 -- before the writes of the grant: a queue of another type ends the script here
local rest, reset
if rates and not own then -- planted:rate-permit-once
  rest, reset = spend(flow, k, rates, 1)
end
if opens then open_phase(key, k, id) end
admit(key, k, text, locker, now + lease, lease, holder)
if enqueue == '1' then call('ZREM', queue, member) end -- otherwise the request never entered the queue
if (opens and others) or k.swept or rates and others then -- other requests in the queue may fit now
  serve(key, k, '', reservation, peers) -- planted:share-brings-others
end
return {1, k.token, 1, k.abandoned and 1 or 0, k.parking_locker and 1 or 0, k.owner, now, rest, reset}
