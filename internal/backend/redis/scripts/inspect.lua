-- inspect.lua: return the state of a key.
-- KEYS[1]=hash KEYS[2]=queue KEYS[3]=parked entries KEYS[4]=shares
-- ARGV: 1 which part of the record (0 none, 1 whole, 2 its first 512 bytes)
-- Returns {state, holder text, held for µs, remaining µs, token, attempts, queue length, live,
--   abandoned, revoked, kept for µs, locker id of the hold}. More elements may follow:
--     if it was requested: the record of a done key
--     if the key is held, or there are parked entries or shares: nil in place of a missing record,
--       the number of entries, the oldest entry, and its age in µs
--     if the key is held: for how long the lease was granted or last renewed, in µs
--     if the key is shared: the sum of the weights, then for each of the first 100 shares its
--       member (see shares.lua), remaining µs, held for µs, locker id, and holder text. The sum is
--       too large if more than 800 shares have expired, and no other command has removed them
-- or the error BADFIELD and the name of a field that cannot be read.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/parked.lua
-- include parts/sweep.lua
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
if count > 0 or k.s == 's' or k.s == 'h' then
  reply[13], reply[14] = reply[13] or false, count
  reply[15], reply[16] = oldest(KEYS[3])
end
if k.s == 'h' then reply[17] = k.d end
if k.s == 's' and k.live then
  local till = string.format('%.0f', now)
  local shares = call('ZRANGE', KEYS[4], '(' .. till, '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
  local c = shares[1] and number(call('HGET', KEYS[1], 'c'), exact) or 0
  for _, member in ipairs(call('ZRANGE', KEYS[4], '-inf', till, 'BYSCORE', 'LIMIT', 0, 800)) do
    local _, _, weight = share_of(member)
    c = c - (weight or 0)
  end
  reply[12], reply[17] = call('HGET', KEYS[1], 'o') or '', math.max(c, 0)
  for i = 1, #shares, 2 do
    local locker, since, holder = string.match(call('HGET', KEYS[1], share_of(shares[i]) or '') or '', '^([^\n]*)\n(%d+)\n(.*)$')
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = shares[i], math.min(tonumber(shares[i + 1]), k.x) - now, math.max(now - (tonumber(since) or now), 0)
    reply[at + 4], reply[at + 5] = locker or '', holder or ''
  end
end
return reply
