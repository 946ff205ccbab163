-- queue.lua: the notifications of waiters, and what a key keeps for late commands. peers has channels,
-- the prefix of the channels of the lockers, and counts_all: PUBLISH counts all receivers. In a
-- Cluster it counts only the receivers of one node.

-- Extends the TTL of the hash to at least ms. A record still ends at its original time. Shares must
-- not expire before the hash, which has their fields.
local function outlive(hash, ms)
  local left = call('PTTL', hash)
  if left >= ms then return end
  call('PEXPIRE', hash, ms) -- first, see key.lua
  if left < 0 then return end
  local v = call('HMGET', hash, 's', 'x')
  if v[1] == done and not v[2] then -- planted:record-keeps-its-end
    call('HSET', hash, 'x', clock() + left * 1000, 'd', left * 1000)
  end
  if v[1] == shared then call('PEXPIRE', hash .. ':s', ms) end -- planted:shares-outlive-the-hash
end

-- Remembers an id that has ended. A late duplicate of the acquire with this id may arrive later. If
-- the id were not remembered, the key would be granted to a request that has ended. So every
-- command that shortens the TTL of the hash must run before this. A hash with ended ids is kept for
-- a minute.
local function remember(hash, ended, id)
  if not string.find(ended, id, 1, true) then
    call('HDEL', hash, 'l') -- first, see key.lua
    call('HSET', hash, 'l', string.sub(ended .. id, -16 * 26))
  end
  outlive(hash, minute_ms) -- planted:remembered-for-a-minute
end

-- Returns the locker id and the request id of a member of the queue.
local function waiter(member)
  if string.byte(member, -1) == 47 then member = string.match(member, '^([^/]*)/[%d/]*$') or member end -- '/', a request for a share
  return string.sub(member, 1, -27), string.sub(member, -26)
end

-- Notifies a locker. Returns whether the locker may have received the message. A message can get lost.
local function notify(peers, locker, message)
  return call('PUBLISH', peers.channels .. locker, message) > 0 or not peers.counts_all
end

-- Notifies all waiters, for a record or an interim answer. Beyond the first 1000, waiters receive it
-- with their next request, within 2 s: a long queue must not block the server.
local function notify_all(queue, channels)
  for _, member in ipairs(call('ZRANGE', queue, 0, 999)) do
    local locker, request = waiter(member)
    call('PUBLISH', channels .. locker, 'w' .. request)
  end
end

-- Tells the first process in the queue that can be notified how soon the cooldown of the key ends.
-- Another process may get the key first, because a message can get lost. The other processes of the
-- queue send their requests again a little later. It drops at most 100 dead members, like reserve.
local function announce(queue, ends, now, peers)
  for _ = 1, 100 do
    local first = call('ZRANGE', queue, 0, 0)[1]
    if not first then return end
    local locker, request = waiter(first)
    if notify(peers, locker, 'c' .. request .. string.format('%.0f', ends - now)) then return end -- planted:cooldown-announced
    call('ZREM', queue, first)
  end
end

-- Reserves the key for the first process in the queue that can be notified, for that many µs. Returns
-- its request id, or false. In a Cluster each member is taken as notified, and the reservation expires
-- if no request arrives. A script drops at most 100 dead members, so that no queue blocks the server.
-- The live members behind them get the free key with their next request, within 2 s, and the next
-- script drops more. The hash must outlive the queue: a request during the reservation extends the
-- TTL of the queue, but not the TTL of the hash.
--
-- A key that is paused cools until the end of the pause instead, and the first process is told. Then
-- the result is ''.
local function reserve(hash, queue, reservation, peers)
  local pause = call('HGET', hash, 'y')
  if pause then
    local now = clock()
    local ends = pause_of(hash, pause, now)
    if ends > 0 then -- planted:paused-not-reserved
      call('HSET', hash, 's', cooling, 'x', ends, 'd', ends - now)
      outlive(hash, math.ceil((ends - now) / 1000) + minute_ms)
      announce(queue, ends, now, peers)
      return ''
    end
  end
  local most = 100 -- planted:dead-members-per-script
  for _ = 1, most do
    local first = call('ZRANGE', queue, 0, 0)[1]
    if not first then return false end
    local locker, request = waiter(first)
    local lives = notify(peers, locker, 'w' .. request) -- planted:waiter-lives
    if lives and string.byte(first, -1) == 47 and (string.find(first, '/%d+/%d+/%d+/%d+/%d+/%d+/$') or call('HGET', hash .. ':f', 'z')) then
      return false -- its own request is granted when its rate or the restriction allows it, so the key stays free
    end
    call('ZREM', queue, first)
    if lives then
      call('HSET', hash, 's', reserved, 'h', request, 'o', locker, 'x', clock() + reservation, 'd', reservation)
      outlive(hash, math.ceil(reservation / 1000) + minute_ms) -- planted:hash-outlives-queue
      return request
    end
  end
  outlive(hash, minute_ms)
  return false
end

-- Frees the key. Reserves it if the process of a waiter in the queue can be notified. Returns the
-- id of that request, or false.
local function free(hash, queue, reservation, peers)
  call('HDEL', hash, 's', 'h', 'o', 'x', 'd', 'v', 'r')
  return reserve(hash, queue, reservation, peers)
end
