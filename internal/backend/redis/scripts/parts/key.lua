-- key.lua reads and writes the hash of a key. In every state but two a key is a hash. A plain hold and
-- a plain record are one string instead, see plain.lua.
--
-- Fields of the hash, all optional, with the names of their values in the scripts:
--   s state: none free, and the letters below
--   h owner: id of the grant, or of the request that the key is reserved for
--   o locker: id of the locker of the owner
--   x ends: end of the state, in µs of the server's clock. A done key has it only if the hash
--     outlives the record
--   d length: how long the state can last, in µs, from its start or its last renewal. So
--     ends - length is the time of the last renewal of a hold
--   m holder: holder text
--   t token: first token of the last hold, in µs of the server's clock. The hold may use tokens up to
--     token + block - 1
--   f used: greatest token used, if it is not token
--   n attempts: number of runs of a once key
--   v revoked: 1 if the hold is revoked, 2 if it is revoked for a newer one
--   a abandoned: a hold was abandoned, and no run has ended since
--   g fingerprint
--   r record of a done key; interim answer of a held key, see interim.lua
--   e completed_by: id of the grant that completed the key
--   l ended: ids that have ended, for which a late duplicate may still arrive
--   y pause: its end, its length, both in µs, and its reason. No request is granted before the end
--   p parking_locker: id of the locker that parked an entry most recently: the key may have parked
--     entries. If the hash is lost, the next parking sets p again. p only affects how soon a parked
--     task runs
-- While a key is shared it has more fields, and some have another meaning, see shares.lua.
--
-- Members of the queue: locker id .. request id, by arrival. A request id has 26 characters. A
-- request for a share has "/" limit "/" weight "/" after its id.
-- Members of the set of parked entries: texts, by the time of their first parking.
-- Members of the set of woken entries: the same texts, by the time at which they were marked.
-- Members of the set of triggers: see trigger.lua.
--
-- Numbers are passed to commands as they are, because a command writes integers in full. The
-- operator .. would write a large number as 1.79e+15. A script reads only the fields that it needs
-- and writes only those that change, because these commands are most of its cost.
--
-- The comment "first" marks a write that needs no memory. At maxmemory Redis refuses the first write
-- of a script if it needs memory, and permits all writes after one that needs none. So a held key can
-- be renewed and released at maxmemory. Comments of the form "planted" and
-- a name mark lines that tests change, to prove that they find the mistake.
local call = redis.call
local held, reserved, cooling, done, shared = 'h', 'r', 'c', 'd', 's' -- states
local block = 512 -- tokens that one grant may use
local day_us = 86400000000 -- µs
local minute_ms = 60000 -- ms: how long an ended id is remembered, and how long a queue outlives its last request
local waits_ttl = 15000 -- ms: how long a process's count of its waiting calls is remembered
local parked_ttl = 600000 -- ms: minimum time for which the hash of a key with parked entries is kept

-- Returns the time, in µs of the server's clock.
local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Writes a time anew that is wrong since the clock was set back. A user who may only read inspects keys
-- too. For that user the time stays, and is corrected at each reading.
local function correct(hash, field, value) redis.pcall('HSET', hash, field, value) end

-- Returns the end of a pause that has not ended, or 0, and its reason. If the end is further away than
-- the pause is long, the clock was set back, and the field is written anew.
local function pause_of(hash, field, now)
  local ends, length, reason = string.match(field or '', '^(%d+) (%d+) (.*)$')
  if not ends or #ends > 16 or #length > 11 then return 0, '' end
  ends, length = tonumber(ends), tonumber(length)
  if ends - now > length then -- planted:pause-clock
    ends = now + length
    correct(hash, 'y', string.format('%.0f %.0f ', ends, length) .. reason)
  end
  if ends <= now then return 0, '' end
  return ends, reason
end

-- Returns the end of a plain hold by the rule of clamp. Changes nothing.
local function end_of(plain, now) return math.min(plain.x, now + math.min(plain.d, day_us)) end

-- Returns the end of a state. An end that is further away than the state can last means that the
-- clock was set back, or that no script wrote the end. Then clamp shortens it. It is never further
-- away than a day: the longest MinHold, and the longest time within which a hold can be adopted.
local function clamp(hash, ends, length, now)
  if ends - now <= length and length <= day_us then return ends end -- planted:clock-sane
  length = math.min(day_us, length)
  if ends - now <= length then return ends end
  redis.pcall('HDEL', hash, 'x') -- first, see key.lua
  correct(hash, 'x', now + length)
  return now + length
end
