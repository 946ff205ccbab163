-- lease.lua stands before every other script. KEYS[1] is the key's hash, KEYS[2] its queue.
-- Fields of the hash, all optional:
--   s state: none free, h held, r reserved for an ask, d done      h the hold's or ask's id     o its locker
--   x end of that state in µs of the server's clock                d how long it can last, in µs
--   b begin of the hold in µs   m who   t its first token: it may use those up to t + block - 1
--   f greatest token used before   n runs of a once key
--   v revoked   a an abandoned hold has not been followed by a run yet   g fingerprint   r record   e the hold that completed
--   l ids that ended lately and of which a late copy may still come
-- Members of the queue: locker id .. ask id, by arrival. Every id has 26 characters.
-- Numbers are passed to commands as they are, which writes integers in full; ..: on a large one would give 1.79e+15. A script asks
-- only for the fields that it needs, and deletes none that it knows not to be there: that is most of what a script costs.
local call, block = redis.call, 1024 -- tokens that one grant may use
local now -- µs, after clock()
local function clock()
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- An end further away than its state can last means that the clock went back. Returns the end.
local function clamp(key, x, d)
  if x - now <= d then return x end
  call('HDEL', key, 'x') -- first, see renew.lua
  call('HSET', key, 'x', now + d)
  return now + d
end

local function load(key)
  clock()
  local v = call('HMGET', key, 's', 'h', 'o', 'x', 'd', 'b', 'm', 't', 'f', 'n', 'v', 'a', 'g', 'e', 'l')
  local k = {
    s = v[1] or '', h = v[2] or '', o = v[3] or '', x = clamp(key, tonumber(v[4] or 0), tonumber(v[5] or 0)),
    b = math.min(tonumber(v[6] or now), now), m = v[7] or '', t = tonumber(v[8] or 0), f = tonumber(v[9] or 0),
    n = tonumber(v[10] or 0), v = v[11] == '1', a = v[12] == '1', g = v[13] or '', e = v[14] or '', l = v[15] or '',
  }
  if k.s == 'h' then k.f = math.max(k.f, k.t + block - 1) end
  k.live = (k.s == 'h' or k.s == 'r') and k.x > now
  return k
end

-- A copy of this ask may arrive after its end: remember it, so that it is never granted to nobody.
local function remember(l, f, id)
  if string.find(l, id, 1, true) then return end
  call('HDEL', KEYS[1], 'l') -- first, see renew.lua
  call('HSET', KEYS[1], 'l', string.sub(l .. id, -16 * 26))
  if f == 0 then call('PEXPIRE', KEYS[1], 60000) end -- the hash may be new: no key without a TTL
end

-- Stand in line, once.
local function enqueue(member, keep)
  call('ZADD', KEYS[2], 'NX', now, member)
  call('PEXPIRE', KEYS[2], keep)
end

-- Anybody may take a key that is free or ran out: a rule "first in line only" sticks when the first is dead. n is nil for an
-- exclusive key.
local function grant(f, n, a, ask, locker, lease, who, keep, tag)
  local begin = string.format('%.0f', now) -- once: a number costs more than all else
  local t = f < now and begin or string.format('%.0f', f + 1)
  a = a and '1' or '0'
  call('HSET', KEYS[1], 's', 'h', 'h', ask, 'o', locker, 'x', now + lease, 'd', lease, 'b', begin, 'm', who, 't', t, 'a', a, 'g', tag)
  if n then call('HSET', KEYS[1], 'n', n) end
  call('PEXPIRE', KEYS[1], keep)
  return {1, tonumber(t), n or 1, tonumber(a)}
end

-- Reserve the key for the first in line that can be told; true if it is reserved. Where PUBLISH counts the receivers of one node
-- only (Cluster), everybody counts as told and the claim window decides.
local function reserve(window, channel, count)
  window = tonumber(window)
  while true do
    local first = call('ZPOPMIN', KEYS[2])
    if not first[1] then return false end
    clock()
    local o, ask = string.sub(first[1], 1, 26), string.sub(first[1], 27)
    if call('PUBLISH', channel .. o, 'w' .. ask) > 0 or count == '0' then
      call('HSET', KEYS[1], 's', 'r', 'h', ask, 'o', o, 'x', now + window, 'd', window)
      return true
    end
  end
end

-- The same, or leave it free.
local function pass_on(window, channel, count)
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v')
  return reserve(window, channel, count)
end
