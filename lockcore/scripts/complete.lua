-- complete.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 hold 2 record 3 retention ms 4 last token used 5 channel prefix 6 remember (1|0)
-- Returns 1 recorded, or recorded before by this hold · 0 stale: another run has begun or finished.
-- A hold that ran out but was not followed is welcome: the truth is worth more than the lease.
local k = load(KEYS[1])
if k.s == 'd' and k.e == ARGV[1] then return 1 end
if k.s ~= 'h' or k.h ~= ARGV[1] then
  if ARGV[6] == '1' then remember(k.l, k.f > 0, ARGV[1]) end
  return 0
end
call('PEXPIRE', KEYS[1], ARGV[3]) -- first, see renew.lua
call('HSET', KEYS[1], 's', 'd', 'e', ARGV[1], 'r', ARGV[2], 'f', ARGV[4])
call('HDEL', KEYS[1], 'h', 'o', 'x', 'd', 'v', 'a')
if ARGV[6] == '1' then remember(k.l, k.f > 0, ARGV[1]) end
local waiting = call('ZRANGE', KEYS[2], 0, -1) -- everybody learns, none runs
call('DEL', KEYS[2])
for _, w in ipairs(waiting) do
  call('PUBLISH', ARGV[5] .. string.sub(w, 1, 26), 'w' .. string.sub(w, 27))
end
return 1
