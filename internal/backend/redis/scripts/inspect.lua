-- inspect.lua: return the state of a key.
-- part of the record (0 none, 1 whole, 2 its first 512 bytes)
-- Returns {state, holder text, held for µs, remaining µs, token, attempts, queue length, live,
--   abandoned, revoked, kept for µs, locker id of the hold, rest of a pause in µs, its reason, rest of a
--   restriction in µs, its text, see rate.lua, calls that wait, for how long the oldest of them has waited in
--   µs, µs until the bucket of the rate is full, µs until the rates let the first request of the queue
--   begin, the newest trigger if no success covers it, the age of the newest trigger in µs}. The calls are
--   what the first 100 processes of the queue have said, see enter_queue. A process that has said
--   nothing counts as 1. More elements may follow:
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
-- include parts/key.lua
-- include parts/load.lua
-- include parts/parked.lua
-- include parts/share_member.lua
-- include parts/rate.lua
local hash, queue, parked, shares, flow, triggers = unpack(KEYS)
local part = unpack(ARGV)
local k = load(hash, true)
local now = k.now
k.bad = k.bad or load_flow(flow, k)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
local kept = math.max(call('PTTL', hash), 0) * 1000
if k.state == done and k.ends > 0 then kept = math.max(math.min(kept, k.ends - now), 0) end
local waiting = call('ZCARD', queue)
local calls, oldest_wait, turn = waiting, 0, 0
for i, member in ipairs(waiting > 0 and call('ZRANGE', queue, 0, 99) or {}) do
  local locker = string.sub(member, 1, (string.find(member, '/', 1, true) or #member + 1) - 27)
  local said, since = string.match(call('GET', queue .. ':' .. locker) or '', '^(%d+) (%d+)$')
  if said then calls, oldest_wait = calls + said - 1, math.max(oldest_wait, now - since) end -- planted:waits-of-processes
  local rates = i == 1 and rates_of(member, k)
  if rates then turn = math.max(due(rates) - now, 0) end
end
local newest, top, age = '', call('ZRANGE', triggers, 0, 2, 'REV', 'WITHSCORES'), 0 -- see trigger.lua
if #top > 0 and tonumber(top[2]) > 0 then
  age = math.max(now - tonumber(top[2]), 1)
  local succeeded = tonumber(call('ZSCORE', triggers, '=')) or 0
  for i = 1, #top, 2 do
    if newest == '' and top[i] ~= '=' and top[i] ~= '<' and tonumber(top[i + 1]) > succeeded then newest = top[i] end
  end
end
local reply = {k.state, k.holder, k.token > 0 and math.max(now - k.token, 0) or 0, k.live and k.ends - now or 0,
  k.state == held and k.token or k.greatest, k.attempts, waiting, k.live and 1 or 0, k.abandoned and 1 or 0,
  k.revoked and 1 or 0, kept, k.state == held and k.locker or '', math.max(k.paused - now, 0), k.pause_reason,
  k.restriction and k.restriction.left or 0, k.restriction and k.restriction.text or '', calls, oldest_wait,
  math.max(k.buckets.b.full - now, 0), turn, newest, age}
if (part == '1' or part == '2') and k.state == done then
  reply[23] = k.record or call('HGET', hash, 'r') or ''
  if part == '2' then reply[23] = string.sub(reply[23], 1, 512) end
end
local entries = call('ZCARD', parked) -- they may outlive the field p
if entries > 0 or k.state == shared or k.state == held then
  reply[23], reply[24] = reply[23] or false, entries
  reply[25], reply[26] = oldest(parked, now)
end
if k.state == held then reply[27] = k.length end
if k.state == shared and k.live then
  local some = call('ZRANGE', shares, '(' .. string.format('%.0f', now), '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
  local weights = some[1] and number(call('HGET', hash, 'c'), exact) or 0
  for _, member in ipairs(expired_shares(shares, now, 800)) do
    local _, _, weight = share_of(member)
    weights = weights - (weight or 0)
  end
  reply[12], reply[27] = call('HGET', hash, 'o') or '', math.max(weights, 0)
  for i = 1, #some, 2 do
    local locker, since, holder = string.match(call('HGET', hash, share_of(some[i]) or '') or '', '^([^\n]*)\n(%d+)\n(.*)$')
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = some[i], math.min(tonumber(some[i + 1]), k.ends) - now, math.max(now - (tonumber(since) or now), 0)
    reply[at + 4], reply[at + 5] = locker or '', holder or ''
  end
end
return reply
