-- inspect.lua: return the state of a key.
-- KEYS[1]=hash KEYS[2]=queue KEYS[3]=parked entries
-- ARGV: 1 how much of the record (0 none, 1 whole, 2 its first 512 bytes)
-- Returns {state, holder text, held for µs, remaining µs, token, attempts, queue length, live,
--   abandoned, revoked, kept for µs, locker id of the hold}; then, if it was requested, the record of a
--   done key; then, if there are parked entries, nil in place of a missing record, the number of
--   entries, the oldest, and its age in µs,
-- or the error BADFIELD and the name of a field that cannot be read.
local k = load(KEYS[1], true)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
local kept = math.max(call('PTTL', KEYS[1]), 0) * 1000
if k.s == 'd' and k.x > 0 then kept = math.max(math.min(kept, k.x - now), 0) end
local reply = {k.s, k.m, k.t > 0 and math.max(now - k.t, 0) or 0, k.live and k.x - now or 0, k.s == 'h' and k.t or k.f, k.n, call('ZCARD', KEYS[2]),
  k.live and 1 or 0, k.a and 1 or 0, k.v and 1 or 0, kept, k.s == 'h' and k.o or ''}
if (ARGV[1] == '1' or ARGV[1] == '2') and k.s == 'd' then
  reply[13] = k.r or call('HGET', KEYS[1], 'r') or ''
  if ARGV[1] == '2' then reply[13] = string.sub(reply[13], 1, 512) end
end
local count = call('ZCARD', KEYS[3]) -- the entries may outlive the field p
if count > 0 then
  reply[13], reply[14] = reply[13] or false, count
  reply[15], reply[16] = oldest(KEYS[3])
end
return reply
