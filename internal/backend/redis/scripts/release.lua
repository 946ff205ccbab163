-- release.lua: end a hold.
-- grant_id · token: the last one used · abandon: the outcome is unknown (1|0) · retention_ms of the
--   free or abandoned key · repeated: a duplicate of the acquire may arrive, so remember the id
--   (1|0) · reservation µs · channels: their prefix · counts_all: PUBLISH counts all receivers
--   (1|0) · cooldown µs: no request gets the key during it · plain: the hold may be plain (1|0): no
--   duplicate of a command may exist, and the clock is past the tokens
-- Returns 1 released · {1, 1} released, no request has the key, and the key may have parked entries
--   · 0 not the holder, no effect
local hash, queue = unpack(KEYS)
local grant_id, token, abandon, retention_ms, repeated, reservation, channels, counts_all, cooldown, plain = unpack(ARGV)
local stored -- the reply to GET: false, a string, or an error if the key is a hash
if plain == '1' then -- first, because most releases need no more
  stored = redis.pcall('GET', hash)
  if type(stored) == 'string' and string.sub(stored, 1, 28) == 'h' .. grant_id .. ' ' then
    redis.call('DEL', hash)
    return 1
  end
end
-- include parts/plain.lua
-- include parts/key.lua
-- include parts/queue.lua
local peers = {channels = channels, counts_all = counts_all == '1'}
cooldown = tonumber(cooldown)
if type(stored) == 'string' then
  local first = string.sub(stored, 1, 28) == 'o' .. grant_id .. ' ' and string.match(stored, '^o%w+ (%d+) ')
  if not first then return 0 end
  call('DEL', hash) -- first, see key.lua
  call('HSET', hash, 't', first, 'n', 1) -- a once key keeps the number of its runs
  if token ~= first then call('HSET', hash, 'f', token) end
  call('PEXPIRE', hash, retention_ms)
  reserve(hash, queue, reservation, peers)
  return 1
end
local state, owner, first, ended, attempts, parking_locker, pause = unpack(fields(hash, 's', 'h', 't', 'l', 'n', 'p', 'y'), 1, 7)
if state ~= held or owner ~= grant_id then -- planted:release-of-own-hold
  if repeated == '1' then remember(hash, ended or '', grant_id) end
  return 0
end
-- A hash that remembers nothing else is deleted.
if abandon ~= '1' and cooldown == 0 and repeated ~= '1' and not ended and not attempts and not parking_locker and call('ZCARD', queue) == 0 then -- planted:parked-remembered
  local now = clock()
  if now > tonumber(token) and now > (tonumber(first) or math.huge) and (not pause or pause_of(hash, pause, now) == 0) then
    call('DEL', hash)
    return 1
  end
end
call('PEXPIRE', hash, retention_ms) -- first, see key.lua
if abandon == '1' then
  call('HDEL', hash, 's', 'h', 'o', 'x', 'd', 'v', 'r')
  call('HSET', hash, 'a', '1')
else
  call('HDEL', hash, 's', 'h', 'o', 'x', 'd', 'v', 'r', 'a', 'm', 'g')
end
if token ~= first then call('HSET', hash, 'f', token) end
if repeated == '1' then remember(hash, ended or '', grant_id) elseif ended then outlive(hash, minute_ms) end
if parking_locker then outlive(hash, parked_ttl) end
if cooldown > 0 and abandon ~= '1' then
  local now = clock()
  if pause then cooldown = math.max(cooldown, pause_of(hash, pause, now) - now) end
  call('HSET', hash, 's', cooling, 'x', now + cooldown, 'd', cooldown)
  outlive(hash, math.ceil(cooldown / 1000) + minute_ms) -- as in reserve
  announce(queue, now + cooldown, now, peers)
  return 1
end
local next_request = reserve(hash, queue, reservation, peers)
return parking_locker and not next_request and {1, 1} or 1
