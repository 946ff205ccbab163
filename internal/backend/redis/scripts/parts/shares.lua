-- shares.lua
-- KEYS[3] is the set of the shares of a key, by the end of each share, in µs. A member is the text
-- of the request: id "/" limit "/" weight "/". If the share was released and cools, the member has
-- "c" before it. A member of the queue has the same text after the locker id. Ids have
-- 26 characters.
--
-- More fields of the hash while its state s is s, shared:
--   h id of the first share, which names the phase
--   t the token of all shares of the phase
--   x end of the last share
--   d the longest time for which a share was granted, in µs
--   o, m locker and holder text of the share that was granted last
--   c sum of the weights of the members of KEYS[3]
--   u the part of c that is held; the rest cools
--   w the first request of the queue if it does not fit, and when it was last sent, or became the
--     first
--   the text of each member up to the first "/": locker id, time of the grant in µs, and holder
--     text, one per line
local share_keep = 86400000 -- ms: how long the data of a phase outlives the longest lease, while a share is held
local head_silent = 5000000 -- µs: a waiter that does not send its request again for that long is dead
local max_served = 400 -- requests of the queue that one script serves, beside a step of sweep.lua

-- Frees a key without shares.
local function close_phase(k)
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v', 'c', 'u', 'w')
  if k.s == 's' then call('HDEL', KEYS[1], 'm') end
  k.s, k.h, k.c, k.u, k.w, k.v, k.live = '', '', 0, 0, '', false, false
end

-- Ends the revocation of a phase without a held share. Shares that cool have no handler.
local function end_revocation(k)
  if k.u > 0 then return end
  k.v = false
  call('HDEL', KEYS[1], 'v')
end

-- Returns shares that have expired, at most most.
local function ended_shares(most) return call('ZRANGE', KEYS[3], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, most) end

-- Reads the key as load does, and removes the shares that have expired. c is the sum of the weights
-- of the others, and u that of the held ones. swept is set if a share was removed, and closed if no
-- share is left. If more is set, shares are left that have expired, and the script must end with the
-- reply more: they would refuse a request that fits. Each step leaves a valid key, so other commands
-- may run between two steps, and any of them goes on with the rest. A key that cannot be read is not
-- changed.
local function load_shares()
  local k = load(KEYS[1])
  k.c, k.u, k.w = 0, 0, ''
  if k.s ~= 's' then return k end
  local v = call('HMGET', KEYS[1], 'c', 'w', 'd', 'u')
  local c, u, last = number(v[1], exact), number(v[4], exact), call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
  if not c or c == 0 and last[1] then k.bad = k.bad or 'c' end
  if not u then k.bad = k.bad or 'u' end
  if k.bad then return k end
  k.c, k.u, k.w, k.d = c, u, v[2] or '', tonumber(v[3] or 0)
  if not last[1] then
    k.c = 0 -- an operator has deleted the set
  elseif tonumber(last[2]) > k.x then -- the clock was set back, see clamp
    local late = call('ZRANGE', KEYS[3], string.format('(%.0f', k.x), '+inf', 'BYSCORE', 'LIMIT', 0, share_step)
    for _, member in ipairs(late) do
      call('ZADD', KEYS[3], k.x, member) -- planted:share-ends-with-its-phase
    end
    k.more = late[share_step]
    if k.more then return k end
  end
  local expired = ended_shares(share_step)
  if expired[1] then
    local c, u = remove_shares(KEYS[3], expired)
    k.c, k.u, k.swept = k.c - c, k.u - u, true
    if k.c > 0 then call('HSET', KEYS[1], 'c', k.c, 'u', k.u) end -- planted:sweep-counts
    k.more = expired[share_step] and ended_shares(1)[1] -- planted:swept-before-the-reply
    if k.more then return k end
  end
  if k.c <= 0 or k.x <= now then
    close_phase(k)
    k.closed = true
  elseif k.v and k.swept then
    end_revocation(k)
  end
  return k
end

-- Reserves a key that load_shares has freed. Returns the id of the request, or false.
local function pass_phase(k, reservation, channel, counts_all)
  local request = k.closed and reserve(reservation, channel, counts_all) -- planted:phase-passed-on
  if request then k.s, k.h, k.x, k.live = 'r', request, now + tonumber(reservation), true end
  return request
end

-- Makes the key shared. id names the phase.
local function open_phase(k, id)
  if k.s == 'h' and not k.a then
    k.a = true
    call('HSET', KEYS[1], 'a', '1') -- first, because maxmemory may refuse it
  end
  k.s, k.h, k.c, k.u, k.x, k.d, k.w, k.v = 's', id, 0, 0, 0, 0, '', false
  k.t = math.max(k.f + 1, now) -- planted:phase-token
  k.f = k.t
  call('HSET', KEYS[1], 's', 's', 'h', id, 't', string.format('%.0f', k.t))
  call('HDEL', KEYS[1], 'o', 'm', 'v')
end

local function keep_shares(k)
  local keep = math.floor(k.d / 1000) + share_keep
  call('PEXPIRE', KEYS[1], keep)
  call('PEXPIRE', KEYS[3], keep) -- planted:shares-ttl
end

-- Sets the TTLs of a phase in which all shares cool. No renewal follows, so its data is kept only for
-- a minute after the last cooldown, like that of a free key. The mark of an abandoned hold keeps it.
local function keep_cooling(k)
  if k.u > 0 or k.a then return end
  local keep = math.max(math.ceil((k.x - now) / 1000) + minute, k.p and parked or 0)
  call('PEXPIRE', KEYS[1], keep)
  call('PEXPIRE', KEYS[3], keep) -- planted:cooling-ttl
end

-- Adds a share to the phase, or extends it until till.
local function admit(k, text, locker, till, length, holder)
  local id, _, weight = share_of(text)
  if call('ZADD', KEYS[3], 'GT', till, text) == 1 then k.c, k.u = k.c + weight, k.u + weight end -- planted:share-counts-once
  k.x, k.d = math.max(k.x, till), math.max(k.d, length)
  call('HSET', KEYS[1], 'x', k.x, 'd', k.d, 'c', k.c, 'u', k.u, id, locker .. '\n' .. string.format('%.0f', now) .. '\n' .. holder)
  if holder ~= '' then call('HSET', KEYS[1], 'm', holder, 'o', locker) end
  keep_shares(k)
end

-- Tells the first request of the queue how soon the cooldown ends that it waits for. A share may fit
-- at the end of the first cooldown. The whole key is free at the end of the last one, which is known
-- when no share is held. new is true if the request has just become the first. Otherwise only the
-- share that this script has ended, k.freed, may have changed that time. A message can get lost: the
-- request is sent again within 2 s.
local function tell(k, locker, id, limit, new, channel)
  local at = not limit and k.u == 0 and k.x
  local first = limit and call('ZRANGE', KEYS[3], 0, 9, 'WITHSCORES') or {} -- few of the shares before the first cooldown are held
  for i = 1, #first, 2 do
    if string.byte(first[i]) == 99 then
      at = (new or first[i] == k.freed) and tonumber(first[i + 1])
      break
    end
  end
  if at then call('PUBLISH', channel .. locker, 'c' .. id .. string.format('%.0f', at - now)) end -- planted:cooldown-told
end

-- Grants a share to each request at the front of the queue that fits. Such a share lasts for the
-- time of a reservation, and its request then extends it. A request whose process cannot be
-- notified is removed. The first request is also removed if it does not fit and its process is
-- silent. asker is the request of this script, whose process is not silent. Returns how many
-- processes were notified.
local function serve(k, asker, reservation, channel, counts_all)
  local served = 0
  for _ = 1, max_served do
    local first = call('ZRANGE', KEYS[2], 0, 0)[1] -- not popped, because a queue that is written anew has no TTL
    if not first then
      if k.w ~= '' then call('HDEL', KEYS[1], 'w') end
      return served
    end
    local locker, text = string.match(first, '^(.*)(' .. string.rep('%w', 26) .. '/%d+/%d+/)$')
    local _, limit, weight = share_of(text or '')
    if limit and k.c + weight <= limit then
      call('ZREM', KEYS[2], first)
      if call('PUBLISH', channel .. locker, 'w' .. string.sub(text, 1, 26)) > 0 or counts_all == '0' then
        admit(k, text, locker, now + tonumber(reservation), tonumber(reservation), '')
        served = served + 1
      end
    else
      local id = text and string.sub(text, 1, 26) or string.sub(first, -26)
      local noted, seen = string.match(k.w, '^(%w+) (%d+)$')
      local new = noted ~= id
      if new or asker == id or tonumber(seen) > now then -- in the last case the clock was set back
        k.w, seen = id .. ' ' .. string.format('%.0f', now), now
        call('HSET', KEYS[1], 'w', k.w)
      end
      if now - tonumber(seen) <= head_silent then -- planted:head-keeps-its-place
        if k.c > k.u and id ~= asker and (new or k.freed) then tell(k, locker or string.sub(first, 1, -27), id, limit, new, channel) end
        return served
      end
      call('ZREM', KEYS[2], first)
    end
  end
  return served
end
