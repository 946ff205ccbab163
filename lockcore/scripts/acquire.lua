-- acquire.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 ask 2 locker 3 lease µs 4 queue me (1|0) 5 who 6 retention ms of an abandoned hold
--       7 fingerprint 8 mode: exclusive | least | most 9 retention ms of the queue
-- Returns {1, token, attempt, abandoned} granted · {0, remaining µs, held so far µs, who, waiting, fingerprint} busy ·
--   {2, record, attempt, fingerprint} done · {3, done} other fingerprint · {4, who, age µs, attempt} abandoned, refused · {5} over
-- or the error BADFIELD and the name of a field that it cannot read; then nothing was written
local ask, locker, lease, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[8]
local s, h, t, f, a = v[1], v[2], 0, 0, v[7] == '1'
local x, d
if v[5] then t = number(v[5], exact) end -- a missing field needs no function: this is the path of a free key
if v[6] then f = number(v[6], exact) end
if s then x, d = number(v[3], math.huge), number(v[4], math.huge) end
local bad = not t and 't' or not f and 'f' or n == nil and 'n' or s and (not x and 'x' or not d and 'd')
if bad then return {err = 'BADFIELD ' .. bad} end

clock()
if s then x = clamp(KEYS[1], x, d, s) end
local live = s and x > now
if s == 'h' and h == ask then -- planted:same-request
  if not live or call('HGET', KEYS[1], 'v') == '1' then return {5} end -- never revived
  -- The answer was lost, or this is a late copy: the same grant again, and never a shorter one.
  if now + tonumber(lease) > x then call('HSET', KEYS[1], 'x', now + tonumber(lease), 'd', lease) end
  return {1, t, n or 1, a and 1 or 0}
end
-- planted:late-duplicate
if v[9] and string.find(v[9], ask, 1, true) then return {5} end -- a late copy of an ask that has ended

if live and not (s == 'r' and h == ask) then -- planted:key-is-taken
  if s == 'h' and other then return {3, 0} end
  if ARGV[4] == '1' then enqueue(locker .. ask, ARGV[9]) end
  local queue = call('ZCARD', KEYS[2])
  if s ~= 'h' then return {0, x - now, 0, '', queue, ''} end
  return {0, x - now, math.max(now - t, 0), call('HGET', KEYS[1], 'm') or '', queue, g}
end

f = math.max(f, t)
if s == 'h' then f = math.max(f, t + block - 1) end -- planted:tokens-of-dead-holder
if (a or s == 'h') and mode == 'most' then -- planted:abandoned-refused
  return {4, call('HGET', KEYS[1], 'm') or '', math.max(now - t, 0), n}
end
if (a or s == 'h') and other then return {3, 0} end
-- planted:grant-reply
local reply = grant(f, n and n + 1, a or s == 'h', ask, locker, lease, ARGV[5], ARGV[6]) -- first: it is what maxmemory refuses
if s == 'h' then
  if not a then call('HSET', KEYS[1], 'a', '1') end -- planted:abandoned-noted
  call('HDEL', KEYS[1], 'v')
end
if past then call('HDEL', KEYS[1], 'r', 'e') end
if tag ~= '' then
  call('HSET', KEYS[1], 'g', tag)
elseif g ~= '' then
  call('HDEL', KEYS[1], 'g')
end
if ARGV[4] == '1' then call('ZREM', KEYS[2], locker .. ask) end -- else it never stood in line
return reply
