-- lease.lua is part of every script. Those of load.lua, grant.lua and pass.lua that a script needs
-- follow it. KEYS[1] is the hash of the key or its string, see plain.lua. KEYS[2] is its queue.
--
-- Fields of the hash, all optional:
--   s state: none free, h held, r reserved for a request, c cooling, d done, s shared (see shares.lua)
--   h id of the grant, or of the request that the key is reserved for
--   o id of the locker of h
--   x end of the state, in µs of the server's clock; of d only if the hash outlives the record
--   d how long the state can last, in µs, from its start or its last renewal
--   m holder text
--   t first token of the last hold, in µs of the server's clock; the hold may use tokens up to
--     t + block - 1
--   f greatest token used, if it is not t
--   n number of runs of a once key
--   v revoked
--   a a hold was abandoned, and no run has ended since
--   g fingerprint
--   r record of a done key; of a held one the interim answer, see interim.lua
--   e id of the grant that completed the key
--   l ids that have ended, of which a late duplicate may still arrive
--   p id of the locker that parked an entry most recently: the key may have parked entries. If the
--     hash is lost, the next parking sets p again. It only affects how soon a parked task runs.
-- Members of the queue: locker id .. request id, by arrival. A request id has 26 characters. A request for
-- a share has "/" limit "/" weight "/" after its id.
-- Members of the set of parked entries: texts, by their first parking.
-- Members of the set of woken entries: the same texts, by the time at which they were marked.
--
-- Numbers are passed to commands as they are, which writes integers in full. The operator .. would
-- write a large one as 1.79e+15. A script reads only the fields that it needs and writes only those
-- that change, because these commands are most of its cost.
local call, block = redis.call, 512 -- tokens that one grant may use
local now -- µs, after clock()
local function clock()
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local day = 86400000000 -- µs

-- Returns the end of a plain hold by the same rule as clamp, and changes nothing.
local function end_of(p) return math.min(p.x, now + math.min(p.d, day)) end

-- Returns the end x of a state. An end that is further away than the state can last means that the
-- clock was set back, or that no script wrote the end. Then clamp shortens it. It is never further
-- away than a day: the longest MinHold, and the longest time for which a hold can be adopted.
local function clamp(key, x, d)
  if x - now <= d and d <= day then return x end -- planted:clock-sane
  d = math.min(day, d)
  if x - now <= d then return x end
  call('HDEL', key, 'x') -- first, see renew.lua
  call('HSET', key, 'x', now + d)
  return now + d
end
