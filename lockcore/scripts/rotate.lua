-- rotate.lua: release an exclusive key and ask for it again, of a process that has more in line. Others go first.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 hold 2 last token used 3 retention ms 4 remember (1|0) 5 claim window µs 6 channel prefix 7 PUBLISH counts everybody (1|0)
--       8 next ask 9 locker 10 lease µs 11 queue me (1|0) 12 who 13 retention ms of an abandoned hold 14 retention ms of the queue
-- Returns {released (1) | not the holder, no effect (0)}, followed by what acquire.lua would return for the next ask
local hold, ask, locker = ARGV[1], ARGV[8], ARGV[9]
local k = load(KEYS[1])
if k.s ~= 'h' or k.h ~= hold then
  -- A repeat says what the next ask has, and never queues it again.
  if ARGV[4] == '1' then remember(k.l, k.f > 0, hold) end
  if k.s == 'h' and k.h == ask and k.live and not k.v then return {0, 1, k.t, 1, k.a and 1 or 0} end
  return {0, 0, 0, 0, '', call('ZCARD', KEYS[2])} -- busy for no time: ask
end
call('PEXPIRE', KEYS[1], ARGV[3]) -- first, see renew.lua
call('HDEL', KEYS[1], 'a', 'm', 'g')
call('HSET', KEYS[1], 'f', ARGV[2])
if ARGV[4] == '1' then remember(k.l, k.f > 0, hold) end
local reserved = pass_on(ARGV[5], ARGV[6], ARGV[7])
if string.find(k.l, ask, 1, true) then return {1, 5} end -- a late copy, and the next ask has ended too
if reserved then
  if ARGV[11] == '1' then enqueue(locker .. ask, ARGV[14]) end
  return {1, 0, tonumber(ARGV[5]), 0, '', call('ZCARD', KEYS[2])}
end
return {1, unpack(grant(tonumber(ARGV[2]), nil, false, ask, locker, ARGV[10], ARGV[12], ARGV[13]))}
