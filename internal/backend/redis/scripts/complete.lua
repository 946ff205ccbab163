-- complete.lua: end the hold of a once key and store its record.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 grant id, 2 record, 3 retention ms, 4 last token used, 5 channel prefix,
--       6 remember the id (1|0),
--       7 the grant was a plain hold (1|0): no duplicate of its acquire may exist
-- Returns 1 recorded, now or earlier by this grant · {1, 1} recorded, and the key may have parked
--   entries · 0 stale: another run has begun or finished
-- It also succeeds after the lease expired, provided that no other hold has begun.
-- include parts/plain_complete.lua
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/pass.lua
local k = load(KEYS[1])
local recorded = k.p and {1, 1} or 1
if k.s == 'd' and k.e == ARGV[1] then
  call('HDEL', KEYS[1], 'e') -- first, see renew.lua; a write, because WAIT counts only the writes of its own connection
  call('HSET', KEYS[1], 'e', ARGV[1])
  return recorded
end
if k.s ~= 'h' or k.h ~= ARGV[1] then -- planted:completion-of-own-hold
  if ARGV[6] == '1' then remember(k.l, ARGV[1]) end
  return 0
end
call('PEXPIRE', KEYS[1], ARGV[3]) -- first, see renew.lua
call('HSET', KEYS[1], 's', 'd', 'e', ARGV[1], 'r', ARGV[2], 'f', ARGV[4])
call('HDEL', KEYS[1], 'h', 'o', 'x', 'd', 'v', 'a')
local kept = k.p and parked or (ARGV[6] == '1' or k.l ~= '') and minute or 0 -- ms
if tonumber(ARGV[3]) < kept then -- the hash outlives the record, so the record needs its own end
  call('HSET', KEYS[1], 'x', now + ARGV[3] * 1000, 'd', ARGV[3] * 1000)
  call('PEXPIRE', KEYS[1], kept)
end
if ARGV[6] == '1' then remember(k.l, ARGV[1]) end
-- Every waiter is notified, because none of them will run. Beyond the first 1000, waiters receive
-- the record with their next request, within 2 s: a long queue must not block the server.
local waiting = call('ZRANGE', KEYS[2], 0, 999)
call('DEL', KEYS[2])
for _, w in ipairs(waiting) do
  call('PUBLISH', ARGV[5] .. string.sub(w, 1, -27), 'w' .. string.sub(w, -26)) -- planted:record-told
end
return recorded
