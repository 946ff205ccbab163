-- pass.lua
local minute = 60000 -- ms: how long an ended id is remembered, and how long a queue outlives its last request
local parked = 600000 -- ms: minimum time for which the hash of a key with parked entries is kept

-- Extends the TTL of the hash to at least ms. A record still ends at its original time.
local function outlive(ms)
  local left = call('PTTL', KEYS[1])
  if left >= ms then return end
  call('PEXPIRE', KEYS[1], ms) -- first, see renew.lua
  if left < 0 then return end
  local v = call('HMGET', KEYS[1], 's', 'x')
  if v[1] == 'd' and not v[2] then -- planted:record-keeps-its-end
    clock()
    call('HSET', KEYS[1], 'x', now + left * 1000, 'd', left * 1000)
  end
end

-- Remembers an id that has ended. A late duplicate of the acquire with this id may arrive later. If
-- the id were not remembered, the key would be granted to a request that has ended. So every
-- command that shortens the TTL of the hash must run before this. A hash with ended ids is kept for
-- a minute.
local function remember(l, id)
  if not string.find(l, id, 1, true) then
    call('HDEL', KEYS[1], 'l') -- first, see renew.lua
    call('HSET', KEYS[1], 'l', string.sub(l .. id, -16 * 26))
  end
  outlive(minute) -- planted:remembered-for-a-minute
end

-- Returns the locker id and the request id of a member of the queue.
local function waiter(member)
  if string.byte(member, -1) == 47 then member = string.match(member, '^(.*)/%d+/%d+/$') or member end -- '/', a request for a share
  return string.sub(member, 1, -27), string.sub(member, -26)
end

-- Tells the first process in the queue that can be notified how soon the cooldown of the key ends.
-- Another process may get the key first, because a message can get lost. The other processes of the
-- queue send their requests again a little later. It drops at most 100 dead members, like reserve.
local function announce(at, channel, counts_all)
  for _ = 1, 100 do
    local first = call('ZRANGE', KEYS[2], 0, 0)[1]
    if not first then return end
    local o, request = waiter(first)
    if call('PUBLISH', channel .. o, 'c' .. request .. string.format('%.0f', at - now)) > 0 or counts_all == '0' then return end -- planted:cooldown-announced
    call('ZREM', KEYS[2], first)
  end
end

-- Reserves the key for the first process in the queue that can be notified. Returns its request id,
-- or false. In a Cluster PUBLISH counts only the receivers of one node. So there each member counts
-- as notified, and the reservation expires if no request arrives. A script drops at most 100 dead
-- members, so that no queue blocks the server. The live members behind them get the free key with
-- their next request, within 2 s, and the next script drops more. The hash must outlive the queue:
-- a request during the reservation extends the TTL of the queue, but not that of the hash.
local function reserve(reservation, channel, counts_all)
  local most = 100 -- planted:dead-members-per-script
  for _ = 1, most do
    local first = call('ZPOPMIN', KEYS[2])
    if not first[1] then return false end
    local o, request = waiter(first[1])
    if call('PUBLISH', channel .. o, 'w' .. request) > 0 or counts_all == '0' then -- planted:waiter-lives
      clock()
      call('HSET', KEYS[1], 's', 'r', 'h', request, 'o', o, 'x', now + tonumber(reservation), 'd', reservation)
      outlive(math.ceil(reservation / 1000) + minute) -- planted:hash-outlives-queue
      return request
    end
  end
  outlive(minute)
  return false
end
