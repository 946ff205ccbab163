-- shares.lua: a key with shares. A phase is the time from its first share to the end of the last one.
-- Its set of shares has them by the end of each share, in µs. A member
-- is the text of the request: id "/" limit "/" weight "/". If the share was released and cools, the
-- member has "c" before it. A member of the queue has the same text after the locker id. Ids have
-- 26 characters.
--
-- The hash while the key is shared:
--   h owner: id of the first share, which names the phase
--   t token: of all shares of the phase
--   x ends: end of the last share
--   d length: the longest time for which a share was granted, in µs
--   o, m locker and holder text of the share that was granted last
--   c weights: sum of the weights of the members of the set
--   u weights_held: the part of weights that is held; the rest cools
--   w head: the first request of the queue if it does not fit, and when it was last sent, or became
--     the first
--   the text of each member up to the first "/": locker id, time of the grant in µs, and holder
--     text, one per line
--
-- In the functions, key has the names of the stored keys (hash, queue, shares), and k the fields that
-- load_shares has read.
local share_keep = 86400000 -- ms: how long the data of a phase outlives the longest lease, while a share is held
local head_silent = 5000000 -- µs: a waiter that does not send its request again for that long is dead
local max_served = 400 -- requests of the queue that one script serves, in addition to the shares of a step

-- Frees a key without shares.
local function close_phase(key, k)
  call('HDEL', key.hash, 's', 'h', 'o', 'x', 'd', 'v', 'c', 'u', 'w')
  if k.state == shared then call('HDEL', key.hash, 'm') end
  k.state, k.owner, k.weights, k.weights_held, k.head, k.revoked, k.live = '', '', 0, 0, '', false, false
end

-- Ends the revocation of a phase without a held share. Shares that cool have no handler.
local function end_revocation(key, k)
  if k.weights_held > 0 then return end
  k.revoked = false
  call('HDEL', key.hash, 'v')
end

-- Reads the key as load does, and removes the shares that have expired. swept is set if a share was
-- removed, and closed if no share is left. If more is set, this was only a
-- step: shares that have expired are left, or ends to correct. Then the script must end with the reply
-- more, because expired shares would keep out a request that fits. Each step leaves a
-- valid key, so other commands may run between two steps, and any of them goes on with the rest. A
-- key that cannot be read is not changed.
local function load_shares(key)
  local k = load(key.hash)
  k.weights, k.weights_held, k.head = 0, 0, ''
  if k.state ~= shared then return k end
  local v = call('HMGET', key.hash, 'c', 'w', 'd', 'u')
  local weights, weights_held, last = number(v[1], exact), number(v[4], exact), call('ZRANGE', key.shares, -1, -1, 'WITHSCORES')
  if not weights or weights == 0 and last[1] then k.bad = k.bad or 'c' end
  if not weights_held then k.bad = k.bad or 'u' end
  if k.bad then return k end
  k.weights, k.weights_held, k.head, k.length = weights, weights_held, v[2] or '', tonumber(v[3] or 0)
  if not last[1] then
    k.weights = 0 -- an operator has deleted the set
  elseif tonumber(last[2]) > k.ends then -- the clock was set back, see clamp
    local late = call('ZRANGE', key.shares, string.format('(%.0f', k.ends), '+inf', 'BYSCORE', 'LIMIT', 0, share_step)
    for _, member in ipairs(late) do
      call('ZADD', key.shares, k.ends, member) -- planted:share-ends-with-its-phase
    end
    k.more = late[share_step]
    if k.more then return k end
  end
  local expired = expired_shares(key.shares, k.now, share_step)
  if expired[1] then
    local gone, gone_held = remove_shares(key.hash, key.shares, expired)
    k.weights, k.weights_held, k.swept = k.weights - gone, k.weights_held - gone_held, true
    if k.weights > 0 then call('HSET', key.hash, 'c', k.weights, 'u', k.weights_held) end -- planted:sweep-counts
    k.more = expired[share_step] and expired_shares(key.shares, k.now, 1)[1] -- planted:swept-before-the-reply
    if k.more then return k end
  end
  if k.weights <= 0 or k.ends <= k.now then
    close_phase(key, k)
    k.closed = true
  elseif k.revoked and k.swept then
    end_revocation(key, k)
  end
  return k
end

-- Reserves a free key. Returns the id of the request, or false.
local function reserve_for_next(key, k, reservation, peers)
  local request = reserve(key.hash, key.queue, reservation, peers)
  if request == '' then
    k.state, k.owner, k.ends, k.live = cooling, '', k.paused, true
  elseif request then k.state, k.owner, k.ends, k.live = reserved, request, k.now + reservation, true end
  return request
end

-- Reserves the key if load_shares has closed its phase, and otherwise does nothing. Returns the id of the request, or false.
local function pass_phase(key, k, reservation, peers)
  return k.closed and reserve_for_next(key, k, reservation, peers) -- planted:phase-passed-on
end

-- Returns the time until the end of a pause, or of a longer cooldown.
local function paused_for(k)
  return math.max(k.paused, k.state == cooling and k.live and k.ends or 0) - k.now
end

-- Makes the key shared. id names the phase.
local function open_phase(key, k, id)
  if k.state == held and not k.abandoned then
    k.abandoned = true
    call('HSET', key.hash, 'a', '1') -- first, because maxmemory may refuse it
  end
  k.state, k.owner, k.weights, k.weights_held, k.ends, k.length, k.head, k.revoked = shared, id, 0, 0, 0, 0, '', false
  k.token = math.max(k.greatest + 1, k.now) -- planted:phase-token
  k.greatest = k.token
  call('HSET', key.hash, 's', shared, 'h', id, 't', string.format('%.0f', k.token))
  call('HDEL', key.hash, 'o', 'm', 'v')
end

-- Sets the TTLs of a phase in which a share is held.
local function keep_shares(key, k)
  local keep = math.floor(k.length / 1000) + share_keep
  call('PEXPIRE', key.hash, keep)
  call('PEXPIRE', key.shares, keep) -- planted:shares-ttl
end

-- Sets the TTLs of a phase in which all shares cool. No renewal follows, so its data is kept only for
-- a minute after the last cooldown, like the data of a free key. The mark of an abandoned hold keeps it.
local function keep_cooling(key, k)
  if k.weights_held > 0 or k.abandoned then return end
  local keep = math.max(math.ceil((math.max(k.ends, k.paused) - k.now) / 1000) + minute_ms, k.parking_locker and parked_ttl or 0)
  call('PEXPIRE', key.hash, keep)
  call('PEXPIRE', key.shares, keep) -- planted:cooling-ttl
end

-- Adds a share to the phase, or extends it until ends.
local function admit(key, k, text, locker, ends, length, holder)
  local id, _, weight = share_of(text)
  if call('ZADD', key.shares, 'GT', ends, text) == 1 then k.weights, k.weights_held = k.weights + weight, k.weights_held + weight end -- planted:share-counts-once
  k.ends, k.length = math.max(k.ends, ends), math.max(k.length, length)
  call('HSET', key.hash, 'x', k.ends, 'd', k.length, 'c', k.weights, 'u', k.weights_held,
    id, locker .. '\n' .. string.format('%.0f', k.now) .. '\n' .. holder)
  if holder ~= '' then call('HSET', key.hash, 'm', holder, 'o', locker) end
  keep_shares(key, k)
end

-- Tells the first request of the queue how soon the cooldown ends that it waits for. A share may fit
-- at the end of the first cooldown. The whole key is free at the end of the last one, which is known
-- when no share is held. new is true if the request has just become the first. Otherwise only the
-- share that this script has ended, k.freed, may have changed that time. A message can get lost: the
-- request is sent again within 2 s.
local function tell(key, k, locker, id, limit, new, peers)
  local at = not limit and k.weights_held == 0 and k.ends
  local first = limit and call('ZRANGE', key.shares, 0, 9, 'WITHSCORES') or {} -- few of the shares before the first cooldown are held
  for i = 1, #first, 2 do
    if cools(first[i]) then
      at = (new or first[i] == k.freed) and tonumber(first[i + 1])
      break
    end
  end
  if at then notify(peers, locker, 'c' .. id .. string.format('%.0f', at - k.now)) end -- planted:cooldown-told
end

-- Tells the first request of the queue, which has a rate, when it is due. Removes that request if its
-- process cannot be notified or is silent. Returns how many processes were notified, and whether the
-- request was removed. The request is told once when it becomes the first, when a share ends, and
-- again by each other request while it is overdue, because a message can get lost.
local function serve_head(key, k, first, locker, text, asker, peers)
  local flow, id, limit, weight = key.hash .. ':f', share_of(text)
  limit = limit_of(k, limit, weight)
  if id == asker then
    see_head(flow, k, id)
    return 0, false
  end
  local new = k.rated_head ~= id
  if new or k.rated_seen > k.now then see_head(flow, k, id) end -- in the last case the clock was set back
  if k.now - k.rated_seen > head_silent then -- planted:rate-silent-head
    call('ZREM', key.queue, first)
    return 0, true
  end
  local at = due(rates_of(text, k)) -- planted:rate-told
  if limit > 0 and k.weights + weight > limit or at > k.now and not new and not k.freed then return 0, false end
  if not notify(peers, locker, 'c' .. id .. string.format('%.0f', math.max(at - k.now, 0))) then -- planted:rate-dead-head
    call('ZREM', key.queue, first)
    return 0, true
  end
  return 1, false
end

-- Grants a share to each request at the front of the queue that fits. Such a share lasts for the
-- time of a reservation, and its request then extends it. A request whose process cannot be
-- notified is removed. The first request is also removed if it does not fit and its process is
-- silent. asker is the request of this script, whose process is not silent. While the key is paused it
-- does nothing. Returns how many processes were notified.
local function serve(key, k, asker, reservation, peers)
  local served = 0
  if k.paused > 0 then return served end -- planted:paused-not-served
  for _ = 1, max_served do
    local first = call('ZRANGE', key.queue, 0, 0)[1] -- not popped, because a queue that is written anew has no TTL
    if not first then
      if k.head ~= '' then call('HDEL', key.hash, 'w') end
      return served
    end
    local locker, text = string.match(first, '^(.*)(' .. string.rep('%w', 26) .. '/%d+/%d+/[%d/]*)$')
    local _, limit, weight = share_of(text or '')
    if not k.buckets and load_flow(key.hash .. ':f', k) then return served end -- its own request reports the field
    limit = limit and limit_of(k, limit, weight)
    if text and rates_of(text, k) then
      local told, gone = serve_head(key, k, first, locker, text, asker, peers)
      if not gone then return served + told end
    elseif k.state == '' then
      return served + (reserve_for_next(key, k, reservation, peers) and 1 or 0)
    elseif limit and k.weights + weight <= limit then
      call('ZREM', key.queue, first)
      if notify(peers, locker, 'w' .. string.sub(text, 1, 26)) then
        admit(key, k, text, locker, k.now + reservation, tonumber(reservation), '')
        served = served + 1
      end
    else
      local id = text and string.sub(text, 1, 26) or string.sub(first, -26)
      local noted, seen = string.match(k.head, '^(%w+) (%d+)$')
      local new = noted ~= id
      if new or asker == id or tonumber(seen) > k.now then -- in the last case the clock was set back
        k.head, seen = id .. ' ' .. string.format('%.0f', k.now), k.now
        call('HSET', key.hash, 'w', k.head)
      end
      if k.now - tonumber(seen) <= head_silent then -- planted:head-keeps-its-place
        if k.weights > k.weights_held and id ~= asker and (new or k.freed) then tell(key, k, locker or string.sub(first, 1, -27), id, limit, new, peers) end
        return served
      end
      call('ZREM', key.queue, first)
    end
  end
  return served
end

-- Serves the queue before or after a request with a rate is granted. An expired hold, reservation or
-- cooldown ends first: the holder and the first processes of the queue may be dead, and a request
-- with a rate takes the key from none of them.
local function serve_rated(key, k, asker, reservation, peers)
  if k.live and k.state ~= shared or call('ZCARD', key.queue) == 0 then return end
  if k.state ~= '' and k.state ~= shared then -- planted:rate-behind-expired
    local died = k.state == held
    close_phase(key, k)
    if died then
      k.abandoned = true
      call('HSET', key.hash, 'a', '1', 'f', string.format('%.0f', k.greatest)) -- it may have used all its tokens
    end
  end
  serve(key, k, asker, reservation, peers)
end
