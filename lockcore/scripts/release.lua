-- release.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 hold 2 last token used 3 abandon (1|0): its outcome is unknown 4 retention ms 5 remember (1|0)
--       6 claim window µs 7 channel prefix 8 PUBLISH counts everybody (1|0)
-- Returns {1, waiting} released · {0} not the holder, no effect
local hold = ARGV[1]
local k = load(KEYS[1])
if k.s ~= 'h' or k.h ~= hold then
  if ARGV[5] == '1' then remember(k, hold) end
  return {0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[4]) -- first, see renew.lua
if ARGV[3] == '1' then
  redis.call('HSET', KEYS[1], 'a', '1')
else
  redis.call('HDEL', KEYS[1], 'a', 'm', 'b', 'g')
end
redis.call('HSET', KEYS[1], 'f', ARGV[2])
if ARGV[5] == '1' then remember(k, hold) end
local waiting = redis.call('ZCARD', KEYS[2])
pass_on(ARGV[6], ARGV[7], ARGV[8])
return {1, waiting}
