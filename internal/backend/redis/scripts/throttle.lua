-- throttle.lua: admit calls by the rate of a key, or return why not. Nothing is held.
-- text of the request, see rate.lua · locker id · calls: how many calls of the process wait with the
--   same text; 0: take the cost without waiting · enqueue the request if it does not begin (1|0) ·
--   queue_ms: retention of the queue · reservation µs · channels: their prefix · counts_all: PUBLISH
--   counts all receivers (1|0) · waits: see enter_queue, or missing
-- Returns one of
--   {0, remaining µs, held for µs, holder text, queue length, '', locker id, '', weights, place,
--     exact} busy, as in acquire_share.lua. If exact is 1, the rate decides, and remaining is the
--     time until the turn of the request
--   {5} the request has ended
--   {6, calls that may begin, cost that calls may have now, µs until they may have 1 more, may have
--     parked entries (1|0)} admitted
--   more, see share_member.lua
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/rate.lua
local hash, queue, shares, flow = unpack(KEYS)
local text, locker, calls, enqueue, queue_ms, reservation, channels, counts_all, waits = unpack(ARGV)
calls = tonumber(calls)
local rates

-- Admits as many of the calls as each bucket has the cost for.
local function admit_calls(k, parked)
  local count = calls
  for _, r in ipairs(rates) do
    local room = k.now - math.max(r.bucket.full, k.now) + (r.burst - math.min(r.cost, r.burst)) * r.interval
    count = math.min(count, math.floor(room / (r.cost * r.interval)) + 1) -- planted:rate-batch
  end
  local rest, reset = spend(flow, k, rates, count)
  return {6, count, rest, reset, parked and 1 or 0}
end

if calls == 0 then
  local k = {now = clock()}
  local bad = load_flow(flow, k)
  if bad then return {err = 'BADFIELD ' .. bad} end
  rates = rates_of(text, k)
  spend(flow, k, rates, 1)
  return {6, 1, 0, 0, 0}
end
if call('ZCARD', queue) == 0 and call('PTTL', hash) == -2 then -- first, because most requests need no more
  local k = {now = clock()}
  local bad = load_flow(flow, k)
  if bad then return {err = 'BADFIELD ' .. bad} end
  rates = rates_of(text, k)
  if due(rates) <= k.now then return admit_calls(k, false) end
end
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/shares.lua
local key, peers = {hash = hash, queue = queue, shares = shares, flow = flow}, {channels = channels, counts_all = counts_all == '1'}
local id, member = string.sub(text, 1, 26), locker .. text
local k = load_shares(key)
if k.more then return more end
k.bad = k.bad or load_flow(flow, k)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
rates = rates_of(text, k)
pass_phase(key, k, reservation, peers)
if string.find(k.ended, id, 1, true) then return {5} end
local taken = k.live and k.state ~= shared or k.paused > 0
if not taken then
  serve_rated(key, k, id, reservation, peers)
  local first = call('ZRANGE', queue, 0, 0)[1]
  taken = k.live and k.state ~= shared
  if not taken and (first and first ~= member or due(rates) > k.now) then -- planted:rate-in-turn
    if enqueue == '1' then enter_queue(queue, member, k.now, queue_ms, locker, waits) end
    return busy_rated(key, k, id, member, rates)
  end
end
if taken then
  if enqueue == '1' then enter_queue(queue, member, k.now, queue_ms, locker, waits) end
  see_again(key, k, id)
  local waiting = call('ZCARD', queue)
  if k.paused > 0 and not (k.live and (k.state == held or k.state == reserved)) then
    return {0, paused_for(k), 0, '', waiting, '', '', '', k.weights, place(queue, member), 0, k.pause_reason}
  end
  if k.state == held then return {0, k.ends - k.now, math.max(k.now - k.token, 0), k.holder, waiting, '', k.locker} end
  return {0, k.ends - k.now, 0, '', waiting, '', '', '', 0, k.state == cooling and place(queue, member) or nil}
end
call('ZREM', queue, member)
if call('ZCARD', queue) > 0 then calls = 1 end -- planted:rate-takes-turns
local reply = admit_calls(k, k.parking_locker)
serve_rated(key, k, '', reservation, peers) -- tells the next request
return reply
