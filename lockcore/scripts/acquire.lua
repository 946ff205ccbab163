-- acquire.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 ask 2 locker 3 lease µs 4 queue me (1|0) 5 who 6 token block 7 retention ms of an abandoned hold
--       8 fingerprint 9 mode: exclusive | least | most 10 retention ms of the queue
-- Returns {1, token, attempt, abandoned} granted · {0, remaining µs, held so far µs, who, waiting, fingerprint} busy ·
--   {2, record, attempt, fingerprint} done · {3, done} other fingerprint · {4, who, age µs, attempt} abandoned, refused · {5} over
local ask, locker, lease, mode, tag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[9], ARGV[8]
local k = load(KEYS[1])
local other = tag ~= '' and k.g ~= '' and tag ~= k.g

if k.s == 'd' then
  redis.call('ZREM', KEYS[2], locker .. ask)
  if other then return {3, 1} end
  return {2, redis.call('HGET', KEYS[1], 'r') or '', k.n, k.g}
end

if k.s == 'h' and k.h == ask then
  if not k.live or k.v then return {5} end -- never revived
  -- The answer was lost, or this is a late copy: the same grant again, and never a shorter one.
  if now + lease > k.x then redis.call('HSET', KEYS[1], 'x', int(now + lease), 'd', int(lease)) end
  return {1, k.t, k.n, k.a and 1 or 0}
end
if string.find(k.l, ask, 1, true) then return {5} end -- a late copy of an ask that has ended

local ran_out = k.s == 'h' and not k.live
if k.live and not (k.s == 'r' and k.h == ask) then
  if k.s == 'h' and other then return {3, 0} end
  if ARGV[4] == '1' then enqueue(locker .. ask, ARGV[10]) end
  local held, who = 0, ''
  if k.s == 'h' then held, who = now - k.b, k.m end
  return {0, k.x - now, held, who, redis.call('ZCARD', KEYS[2]), k.s == 'h' and k.g or ''}
end

k.a = k.a or ran_out
if k.a and mode == 'most' then return {4, k.m, now - k.b, k.n} end
if k.a and other then return {3, 0} end
return grant(k, ask, locker, lease, ARGV[5], ARGV[6], ARGV[7], tag)
