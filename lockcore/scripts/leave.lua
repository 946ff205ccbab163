-- leave.lua: an ask that never ran leaves the queue, passes a turn on that was reserved for it, and frees the key if it
-- was granted after all. "Abandoned" stays as it was.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 ask 2 locker 3 retention ms 4 remember (1|0) 5 claim window µs 6 channel prefix 7 PUBLISH counts everybody (1|0)
-- Returns {1} it held the key or a turn · {0} it did not
local ask = ARGV[1]
local k = load(KEYS[1])
call('ZREM', KEYS[2], ARGV[2] .. ask)
local ours = k.h == ask and (k.s == 'h' or k.s == 'r')
if ours and not k.a then call('PEXPIRE', KEYS[1], ARGV[3]) end
if ARGV[4] == '1' then
  if ours or not k.bad then remember(k.l, ask) end -- an unreadable hash grants nothing, and its TTL must not grow
elseif ours and k.l ~= '' then
  outlive(minute)
end
if not ours then return {0} end -- planted:leaves-with-turn
if k.s == 'h' then
  if k.n > 0 then call('HSET', KEYS[1], 'n', k.n - 1) end
  if not k.a then call('HDEL', KEYS[1], 'm', 'g') end
end
pass_on(ARGV[5], ARGV[6], ARGV[7]) -- planted:turn-passed-on
return {1}
