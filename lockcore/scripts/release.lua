-- release.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 hold 2 last token used 3 abandon (1|0): its outcome is unknown 4 retention ms 5 remember (1|0)
--       6 claim window µs 7 channel prefix 8 PUBLISH counts everybody (1|0)
-- Returns 1 released · 0 not the holder, no effect
local hold, last = ARGV[1], ARGV[2]
local v = call('HMGET', KEYS[1], 's', 'h', 't', 'l')
if v[1] ~= 'h' or v[2] ~= hold then
  if ARGV[5] == '1' then remember(v[4] or '', v[3], hold) end
  return 0
end
call('PEXPIRE', KEYS[1], ARGV[4]) -- first, see renew.lua
if ARGV[3] == '1' then
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v')
  call('HSET', KEYS[1], 'a', '1')
else
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v', 'a', 'm', 'g')
end
if last ~= v[3] then call('HSET', KEYS[1], 'f', last) end
if ARGV[5] == '1' then remember(v[4] or '', true, hold) end
reserve(ARGV[6], ARGV[7], ARGV[8])
return 1
