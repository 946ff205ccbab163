-- acquire.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 ask 2 locker 3 lease µs 4 queue me (1|0) 5 who 6 retention ms of an abandoned hold
--       7 fingerprint 8 mode: exclusive | least | most 9 retention ms of the queue
-- Returns {1, token, attempt, abandoned} granted · {0, remaining µs, held so far µs, who, waiting, fingerprint} busy ·
--   {2, record, attempt, fingerprint} done · {3, done} other fingerprint · {4, who, age µs, attempt} abandoned, refused · {5} over
local ask, locker, tag, mode = ARGV[1], ARGV[2], ARGV[7], ARGV[8]
local v = call('HMGET', KEYS[1], 's', 'h', 'x', 'd', 't', 'f', 'a', 'g', 'l', 'n')
local s, h, f, g, n = v[1], v[2], tonumber(v[6] or 0), v[8] or '', mode ~= 'exclusive' and tonumber(v[10] or 0)
local other = tag ~= '' and g ~= '' and tag ~= g

if s == 'd' then
  call('ZREM', KEYS[2], locker .. ask)
  if other then return {3, 1} end
  return {2, call('HGET', KEYS[1], 'r') or '', n or 1, g}
end

clock()
local lease, x = tonumber(ARGV[3]), clamp(KEYS[1], tonumber(v[3] or 0), tonumber(v[4] or 0))
local live, a = s and x > now, v[7] == '1'
if s == 'h' and h == ask then
  if not live or call('HGET', KEYS[1], 'v') == '1' then return {5} end -- never revived
  -- The answer was lost, or this is a late copy: the same grant again, and never a shorter one.
  if now + lease > x then call('HSET', KEYS[1], 'x', now + lease, 'd', lease) end
  return {1, tonumber(v[5]), n or 1, a and 1 or 0}
end
if v[9] and string.find(v[9], ask, 1, true) then return {5} end -- a late copy of an ask that has ended

if live and not (s == 'r' and h == ask) then
  if s == 'h' and other then return {3, 0} end
  if ARGV[4] == '1' then enqueue(locker .. ask, ARGV[9]) end
  local held, who = 0, ''
  if s == 'h' then
    local more = call('HMGET', KEYS[1], 'b', 'm')
    held, who = now - math.min(tonumber(more[1] or now), now), more[2] or ''
  end
  return {0, x - now, held, who, call('ZCARD', KEYS[2]), s == 'h' and g or ''}
end

a = a or s == 'h'
if a and mode == 'most' then
  local more = call('HMGET', KEYS[1], 'm', 'b')
  return {4, more[1] or '', now - math.min(tonumber(more[2] or now), now), n}
end
if a and other then return {3, 0} end
if s == 'h' then
  call('HDEL', KEYS[1], 'v')
  f = math.max(f, v[5] + block - 1)
end
if ARGV[4] == '1' then call('ZREM', KEYS[2], locker .. ask) end -- else it never stood in line
return grant(f, n and n + 1, a, ask, locker, lease, ARGV[5], ARGV[6], tag)
