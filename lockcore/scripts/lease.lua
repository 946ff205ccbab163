-- lease.lua stands before every other script. KEYS[1] is the key's hash, KEYS[2] its queue.
-- Fields of the hash, all optional:
--   s state: none free, h held, r reserved for an ask, d done      h the hold's or ask's id     o its locker
--   x end of that state in µs of the server's clock                d how long it can last, in µs
--   b begin of the hold in µs   m who   t its token   f greatest token that may be out   n runs of the key
--   v revoked   a an abandoned hold has not been followed by a run yet   g fingerprint   r record   e the hold that completed
--   l ids that ended lately and of which a late copy may still come
-- Members of the queue: locker id .. ask id, by arrival. Every id has 26 characters.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- ..: on a large number would give 1.79e+15.
local function int(n) return string.format('%.0f', n) end -- n must be a number: not every Lua converts here

local function load(key)
  local v = redis.call('HMGET', key, 's', 'h', 'o', 'x', 'd', 'b', 'm', 't', 'f', 'n', 'v', 'a', 'g', 'e', 'l')
  local k = {
    s = v[1] or '', h = v[2] or '', o = v[3] or '', x = tonumber(v[4] or 0), d = tonumber(v[5] or 0),
    b = tonumber(v[6] or now), m = v[7] or '', t = tonumber(v[8] or 0), f = tonumber(v[9] or 0), n = tonumber(v[10] or 0),
    v = v[11] == '1', a = v[12] == '1', g = v[13] or '', e = v[14] or '', l = v[15] or '',
  }
  -- An end further away than its state can last means that the clock went back.
  if k.x - now > k.d then
    k.x = now + k.d
    redis.call('HDEL', key, 'x') -- first, see renew.lua
    redis.call('HSET', key, 'x', int(k.x))
  end
  if k.b > now then k.b = now end
  k.live = (k.s == 'h' or k.s == 'r') and k.x > now
  return k
end

-- A copy of this ask may arrive after its end: remember it, so that it is never granted to nobody.
local function remember(k, id)
  if string.find(k.l, id, 1, true) then return end
  redis.call('HDEL', KEYS[1], 'l') -- first, see renew.lua
  redis.call('HSET', KEYS[1], 'l', string.sub(k.l .. id, -16 * 26))
  if k.f == 0 then redis.call('PEXPIRE', KEYS[1], 60000) end -- the hash may be new: no key without a TTL
end

-- Stand in line, once.
local function enqueue(member, keep)
  redis.call('ZADD', KEYS[2], 'NX', int(now), member)
  redis.call('PEXPIRE', KEYS[2], keep)
end

-- Anybody may take a key that is free or ran out: a rule "first in line only" sticks when the first is dead.
local function grant(k, ask, locker, lease, who, block, keep, tag)
  local t = math.max(k.f + 1, now)
  redis.call('HSET', KEYS[1], 's', 'h', 'h', ask, 'o', locker, 'x', int(now + lease), 'd', int(lease), 'b', int(now),
    'm', who, 't', int(t), 'f', int(t + block - 1), 'n', int(k.n + 1), 'a', k.a and '1' or '0', 'g', tag)
  redis.call('HDEL', KEYS[1], 'v', 'e')
  redis.call('PEXPIRE', KEYS[1], keep)
  redis.call('ZREM', KEYS[2], locker .. ask)
  return {1, t, k.n + 1, k.a and 1 or 0}
end

-- Reserve the key for the first in line that can be told, or leave it free; true if it is reserved. Where PUBLISH counts the receivers of one node
-- only (Cluster), everybody counts as told and the claim window decides.
local function pass_on(window, channel, count)
  window = tonumber(window)
  redis.call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v')
  while true do
    local first = redis.call('ZPOPMIN', KEYS[2])
    if not first[1] then return false end
    local o, ask = string.sub(first[1], 1, 26), string.sub(first[1], 27)
    if redis.call('PUBLISH', channel .. o, 'w' .. ask) > 0 or count == '0' then
      redis.call('HSET', KEYS[1], 's', 'r', 'h', ask, 'o', o, 'x', int(now + window), 'd', int(window))
      return true
    end
  end
end
