-- lease.lua stands before every script, followed by what that needs of load.lua, grant.lua and pass.lua. KEYS[1] is the key's hash,
-- KEYS[2] its queue.
-- Fields of the hash, all optional:
--   s state: none free, h held, r reserved for an ask, d done      h the hold's or ask's id     o its locker
--   x end of that state in µs of the server's clock                d how long it can last, in µs
--   m who   t the first token of the last hold, in µs of the server's clock: it may use those up to t + block - 1
--   f greatest token used, if that is not t   n runs of a once key
--   v revoked   a an abandoned hold has not been followed by a run yet   g fingerprint   r record   e the hold that completed
--   l ids that ended lately and of which a late copy may still come
-- Members of the queue: locker id .. ask id, by arrival. Every id has 26 characters.
-- Numbers are passed to commands as they are, which writes integers in full; ..: on a large one would give 1.79e+15. A script asks
-- only for the fields that it needs and writes only those that change: that is most of what a script costs.
local call, block = redis.call, 512 -- tokens that one grant may use
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
