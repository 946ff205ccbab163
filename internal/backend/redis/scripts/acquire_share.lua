-- acquire_share.lua: acquire a share of a key for a request, or return why it does not get one.
-- KEYS[1]=hash KEYS[2]=queue KEYS[3]=shares
-- ARGV: 1 text of the request, see shares.lua, 2 locker id, 3 lease µs, 4 enter the queue (1|0),
--       5 holder text, 6 retention ms of the queue, 7 reservation µs, 8 channel prefix,
--       9 PUBLISH counts all receivers (1|0)
-- Returns one of
--   {0, remaining µs, held for µs, holder text, queue length, '', locker id, '', weights, place}
--     busy, as in acquire.lua. If the key is shared, remaining is that of the share that ends first. If that
--     share cools, held for is 0, and there is no holder
--   {1, token, 1, abandoned (1|0), may have parked entries (1|0), phase, time of the grant in µs}
--     granted
--   {5} the request has ended
--   more, see sweep.lua
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/pass.lua
-- include parts/sweep.lua
-- include parts/shares.lua
local text, locker, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local id, limit, weight = share_of(text)
local k = load_shares()
if k.more then return more end
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
pass_phase(k, ARGV[7], ARGV[8], ARGV[9])
local own = k.s == 's' and call('ZSCORE', KEYS[3], text)
local busy = false
-- Checked first, because a late duplicate may have entered the queue before its request ended, and
-- may have got a share there.
if string.find(k.l, id, 1, true) then return {5} end -- planted:late-duplicate-share
if own then
  if k.v then return {5} end
elseif k.s == 'r' and k.h == id then -- reserved for this request
elseif k.live and (k.s ~= 's' or k.v) then
  busy = true -- planted:share-excluded
elseif k.s == 's' then
  if call('ZCARD', KEYS[2]) > 0 then
    serve(k, id, ARGV[7], ARGV[8], ARGV[9])
    own = call('ZSCORE', KEYS[3], text)
    busy = not own and call('ZCARD', KEYS[2]) > 0 -- planted:share-waits-behind-the-queue
  elseif k.w ~= '' then
    k.w = ''
    call('HDEL', KEYS[1], 'w')
  end
  busy = busy or not own and k.c + weight > limit -- planted:share-fits
end

if busy then
  if ARGV[4] == '1' then enqueue(locker .. text, ARGV[6]) end
  local queue = call('ZCARD', KEYS[2])
  if k.s == 'h' then return {0, k.x - now, math.max(now - k.t, 0), k.m, queue, '', k.o} end
  local at = (k.s == 'c' or k.c > k.u) and place(locker .. text) or nil
  if k.s ~= 's' then return {0, k.x - now, 0, '', queue, '', '', '', 0, at} end
  if string.sub(k.w, 1, 26) == id then call('HSET', KEYS[1], 'w', id .. ' ' .. string.format('%.0f', now)) end
  local ends = call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  if string.sub(ends[1], 1, 1) == 'c' then return {0, tonumber(ends[2]) - now, 0, '', queue, '', '', '', k.c, at} end
  local v = call('HMGET', KEYS[1], 'm', 'o')
  return {0, tonumber(ends[2]) - now, math.max(now - k.t, 0), v[1] or '', queue, '', v[2] or '', '', k.c, at}
end

local opens = k.s ~= 's'
if opens then -- an operator may have deleted the hash of a phase, and not the set
  local left = call('ZRANGE', KEYS[3], 0, share_step - 1)
  remove_shares(KEYS[3], left)
  if left[share_step] then return more end
end
local waits = call('ZCARD', KEYS[2]) > 0 -- before all writes: a queue of another type ends the script here
if opens then open_phase(k, id) end
admit(k, text, locker, now + lease, lease, ARGV[5])
if ARGV[4] == '1' then call('ZREM', KEYS[2], locker .. text) end -- otherwise the request never entered the queue
if opens and waits or k.swept then -- other requests in the queue may fit now
  serve(k, '', ARGV[7], ARGV[8], ARGV[9]) -- planted:share-brings-others
end
return {1, k.t, 1, k.a and 1 or 0, k.p and 1 or 0, k.h, now}
