-- release_share.lua: end a share, or withdraw a request for one: its queue entry, its reservation
-- or its share.
-- KEYS[1]=hash KEYS[2]=queue KEYS[3]=shares
-- ARGV: 1 text of the request, see shares.lua,
--       2 locker id if the request may be in the queue, otherwise '',
--       3 retention ms of a free key, 4 remember the id (1|0), 5 reservation µs, 6 channel prefix,
--       7 PUBLISH counts all receivers (1|0),
--       8 cooldown µs: the weight of the share counts during it,
--       9 notification for the locker that parked the last entry, sent if parked entries may fit
--       now, or ''
-- Returns 1 released · {1, 1} released, no request waits, and the key may have parked entries
--   · 0 no share, no effect · more, see sweep.lua
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/pass.lua
-- include parts/sweep.lua
-- include parts/shares.lua
local text, cooldown = ARGV[1], tonumber(ARGV[8])
local id, _, weight = share_of(text)
local k = load_shares()
if k.more then return more end
local left = ARGV[2] ~= '' and call('ZREM', KEYS[2], ARGV[2] .. text) == 1
local own = k.s == 's' and call('ZSCORE', KEYS[3], text)
local ours = own or k.s == 'r' and k.h == id
if k.bad and k.s == 's' then -- only removes the share: an operator must clear the key
  if not own then return 0 end
  call('ZREM', KEYS[3], text)
  call('HDEL', KEYS[1], id)
  if ARGV[4] == '1' then remember(k.l, id) end
  return 1
end
if own then
  k.u, k.freed = k.u - weight, text
  if cooldown > 0 then
    k.freed = 'c' .. text
    k.d = math.max(k.d, cooldown)
    keep_shares(k) -- first, see renew.lua
    call('HSET', KEYS[1], 'd', k.d)
    if call('ZADD', KEYS[3], 'GT', now + cooldown, 'c' .. text) == 0 then k.c = k.c - weight end -- a share of an earlier grant of this id cools already
    call('HSET', KEYS[1], 'c' .. id, call('HGET', KEYS[1], id) or '') -- planted:cooldown-before-the-end
  else
    k.c = k.c - weight
  end
  call('ZREM', KEYS[3], text)
  call('HDEL', KEYS[1], id)
  if k.c > 0 then
    k.x = tonumber(call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]) -- planted:latest-end
    call('HSET', KEYS[1], 'c', k.c, 'u', k.u, 'x', k.x)
    if k.v then end_revocation(k) end -- planted:revocation-ends
    keep_cooling(k)
  end
end
local queue = call('ZCARD', KEYS[2])
if ours and k.c <= 0 then
  if ARGV[4] ~= '1' and k.l == '' and not k.p and not k.a and queue == 0 and now > math.max(k.f, k.t) then -- as in release.lua
    call('DEL', KEYS[1])
    return 1
  end
  close_phase(k)
  if not k.a then call('PEXPIRE', KEYS[1], ARGV[3]) end
end
if ARGV[4] == '1' then
  if ours or not k.bad then remember(k.l, id) end -- an unreadable hash grants nothing, so its TTL must not be extended
elseif ours and k.s == '' and k.l ~= '' then
  outlive(minute)
end
if ours and k.s == '' and k.p then outlive(parked) end
local served = 0
if k.s == 's' and not k.v then
  served = serve(k, '', ARGV[5], ARGV[6], ARGV[7]) -- planted:share-served
elseif ours and k.s == '' then
  served = reserve(ARGV[5], ARGV[6], ARGV[7]) and 1 or 0
else
  pass_phase(k, ARGV[5], ARGV[6], ARGV[7])
  if left and k.live and k.s == 'c' then announce(k.x, ARGV[6], ARGV[7]) end
end
-- Parked entries may fit now, unless the share cools. If the last request in the queue of a shared
-- key is withdrawn, the releases before it did not report the entries.
local room = ours and cooldown == 0 or left and k.s == 's'
if not k.p or served > 0 or not room or k.v or call('ZCARD', KEYS[2]) > 0 then return ours and 1 or 0 end
if ARGV[9] ~= '' then call('PUBLISH', ARGV[6] .. k.p, ARGV[9]) end
return ours and {1, 1} or 0
