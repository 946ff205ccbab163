-- plain.lua reads plain holds. A plain hold is a string, and nothing else is known of its key:
--   h<grant id> <token> <lease µs> <end µs; 0 before the first renewal> <locker id> <holder text>
-- acquire.lua makes one of a key without data. Every other state of a key is a hash, see lease.lua.

-- Returns the parts of a plain hold. The result is nil for a string that no script writes.
local function parse(value)
  local h, t, d, x, o, m = string.match(value, '^h(%w+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not h or #h ~= 26 or #t > 16 or #d > 10 or #x > 16 then return nil end
  x = tonumber(x)
  return {h = h, t = t, d = d, o = o, m = m, x = x > 0 and x or t + d}
end

-- Returns the plain hold of a key, or nil.
local function plain(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and parse(value)
end

-- Makes a hash of a plain hold. Nothing else changes.
local function unfold(key, p)
  local left = redis.call('PTTL', key)
  redis.call('DEL', key) -- first, see renew.lua
  redis.call('HSET', key, 's', 'h', 'h', p.h, 'o', p.o, 'x', p.x, 'd', p.d, 'm', p.m, 't', p.t)
  if left >= 0 then redis.call('PEXPIRE', key, left + 1) end -- in whole ms, and not earlier than before
end

-- Returns fields of the hash of a key. A plain hold becomes a hash first.
local function fields(key, ...)
  local v = redis.pcall('HMGET', key, ...)
  if not v.err then return v end
  local p = plain(key)
  if p then unfold(key, p) end
  return redis.call('HMGET', key, ...) -- a key of another type ends the script here
end
