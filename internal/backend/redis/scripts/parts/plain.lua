-- plain.lua reads keys that are one string. A plain hold is the only data of an exclusive key:
--   h<grant id> <token> <lease µs> <end µs; 0 before the first renewal> <locker id> <holder text>
-- A plain hold of a once key, which is its first run:
--   o<grant id> <token> <lease µs> <end µs> <locker id> <bytes of the fingerprint>
--     <fingerprint><holder text>
-- A plain record is the record of such a run:
--   d<grant id> <token> <last token used> <bytes of the fingerprint> <bytes of the holder text>
--     <fingerprint><holder text><record>
-- Each form is one line, with one space in place of the line break. acquire.lua stores a plain hold
-- for a key without data. complete.lua replaces the second form by a plain record. In every other
-- state a key is a hash, see key.lua.
--
-- A string remembers no ended ids. So acquire.lua stores a plain hold only for the first send of a
-- request. The scripts that end a request that was sent again remember its id in a hash. A run of a
-- once key leaves a plain record or a hash. SET NX fails on both, so a late duplicate of
-- acquire.lua grants nothing.

-- Returns what a string contains, by the names of the fields of a hash. Returns nil for a string that
-- no script writes.
local function parse(value)
  local form, grant, token, length, ends, locker, rest = string.match(value, '^([ho])(%w+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not form then
    local by, first, used, fingerprint, holder, at = string.match(value, '^d(%w+) (%d+) (%d+) (%d+) (%d+) ()')
    if not by or #by ~= 26 or #first > 16 or #used > 16 or at + fingerprint + holder - 1 > #value then return nil end
    local holder_at, record_at = at + fingerprint, at + fingerprint + holder
    return {
      s = 'd', e = by, t = first, f = used, n = '1', g = holder_at > at and string.sub(value, at, holder_at - 1) or nil,
      m = string.sub(value, holder_at, record_at - 1), r = string.sub(value, record_at),
    }
  end
  if #grant ~= 26 or #token > 16 or #length > 11 or #ends > 16 then return nil end
  ends = tonumber(ends)
  local p = {s = 'h', h = grant, t = token, d = length, o = locker, m = rest, x = ends > 0 and ends or token + length}
  if form == 'o' then
    local fingerprint, at = string.match(rest, '^(%d+) ()')
    if not fingerprint or at + fingerprint - 1 > #rest then return nil end
    local holder_at = at + fingerprint
    p.n, p.g, p.m = '1', holder_at > at and string.sub(rest, at, holder_at - 1) or nil, string.sub(rest, holder_at)
  end
  return p
end

-- Returns the fields of a key that is one string, or nil.
local function parsed(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and parse(value)
end

-- Replaces a string by a hash with the same fields.
local function unfold(key, p)
  local left, list = redis.call('PTTL', key), {}
  for name, value in pairs(p) do
    list[#list + 1] = name
    list[#list + 1] = value
  end
  redis.call('DEL', key) -- first, see key.lua
  redis.call('HSET', key, unpack(list))
  if left >= 0 then redis.call('PEXPIRE', key, left + 1) end -- PTTL is in whole ms; the hash must not expire earlier than the string
end

-- Returns fields of a string in the form of an HMGET reply.
local function values(p, ...)
  local v = {...}
  for i, name in ipairs(v) do v[i] = p[name] or false end
  return v
end

-- Returns fields of the hash of a key. A string becomes a hash first.
local function fields(key, ...)
  local v = redis.pcall('HMGET', key, ...)
  if not v.err then return v end
  local p = parsed(key)
  if p then unfold(key, p) end
  return redis.call('HMGET', key, ...) -- a key of another type ends the script here
end
