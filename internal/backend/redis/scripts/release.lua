-- release.lua: end a hold. plain_release.lua comes first.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 grant id, 2 last token used, 3 abandon (1|0): the outcome is unknown, 4 retention ms,
--       5 remember the id (1|0), 6 reservation µs, 7 channel prefix,
--       8 PUBLISH counts all receivers (1|0), 9 cooldown µs: no request gets the key during it,
--       10 the hold may be plain (1|0): no duplicate of a command may exist, and the clock is past
--       the tokens
-- Returns 1 released · {1, 1} released, no request has the key, and the key may have parked entries
--   · 0 not the holder, no effect
-- include parts/plain_release.lua
-- include parts/plain.lua
-- include parts/lease.lua
-- include parts/pass.lua
local grant_id, last, cooldown = ARGV[1], ARGV[2], tonumber(ARGV[9])
if type(stored) == 'string' then
  local t = string.sub(stored, 1, 28) == 'o' .. grant_id .. ' ' and string.match(stored, '^o%w+ (%d+) ')
  if not t then return 0 end
  call('DEL', KEYS[1]) -- first, see renew.lua
  call('HSET', KEYS[1], 't', t, 'n', 1) -- a once key keeps the number of its runs
  if last ~= t then call('HSET', KEYS[1], 'f', last) end
  call('PEXPIRE', KEYS[1], ARGV[4])
  reserve(ARGV[6], ARGV[7], ARGV[8])
  return 1
end
local v = fields(KEYS[1], 's', 'h', 't', 'l', 'n', 'p')
if v[1] ~= 'h' or v[2] ~= grant_id then -- planted:release-of-own-hold
  if ARGV[5] == '1' then remember(v[4] or '', grant_id) end
  return 0
end
-- A hash that remembers nothing else is deleted.
if ARGV[3] ~= '1' and cooldown == 0 and ARGV[5] ~= '1' and not v[4] and not v[5] and not v[6] and call('ZCARD', KEYS[2]) == 0 then -- planted:parked-remembered
  clock()
  if now > tonumber(last) and now > (tonumber(v[3]) or math.huge) then
    call('DEL', KEYS[1])
    return 1
  end
end
call('PEXPIRE', KEYS[1], ARGV[4]) -- first, see renew.lua
if ARGV[3] == '1' then
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v', 'r')
  call('HSET', KEYS[1], 'a', '1')
else
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v', 'r', 'a', 'm', 'g')
end
if last ~= v[3] then call('HSET', KEYS[1], 'f', last) end
if ARGV[5] == '1' then remember(v[4] or '', grant_id) elseif v[4] then outlive(minute) end
if v[6] then outlive(parked) end
if cooldown > 0 and ARGV[3] ~= '1' then
  clock()
  call('HSET', KEYS[1], 's', 'c', 'x', now + cooldown, 'd', cooldown)
  outlive(math.ceil(cooldown / 1000) + minute) -- as in reserve of pass.lua
  announce(now + cooldown, ARGV[7], ARGV[8])
  return 1
end
local reserved = reserve(ARGV[6], ARGV[7], ARGV[8])
return v[6] and not reserved and {1, 1} or 1
