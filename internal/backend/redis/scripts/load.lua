-- load.lua
-- Returns the fields that load reads, and changes nothing.
local function peek(key, ...)
  local v = redis.pcall('HMGET', key, ...)
  if not v.err then return v end
  local p = plain(key)
  if not p then return call('HMGET', key, ...) end -- a key of another type ends the script here
  if p.x then p.x = end_of(p) end
  v = values(p, ...)
  v.r = p.r
  return v
end

-- Reads all fields of a key except the record. A string becomes a hash. If read_only is set, it stays
-- a string, and r is the record of a plain record. A field that cannot be read counts as 0, and bad is
-- the name of one such field.
local function load(key, read_only)
  clock()
  local v = (read_only and peek or fields)(key, 's', 'h', 'o', 'x', 'd', 'm', 't', 'f', 'n', 'v', 'a', 'g', 'e', 'l', 'p')
  local x, d, t, f, n = number(v[4], math.huge), number(v[5], math.huge), number(v[7], exact), number(v[8], exact), number(v[9], exact)
  local k = {
    s = v[1] or '', h = v[2] or '', o = v[3] or '', x = x and d and clamp(key, x, d) or 0, m = v[6] or '',
    t = t or 0, n = n or 0, v = v[10] == '1', a = v[11] == '1', g = v[12] or '', e = v[13] or '', l = v[14] or '', p = v[15], r = v.r,
    bad = v[1] and (not x and 'x' or not d and 'd') or not t and 't' or not f and 'f' or not n and 'n',
  }
  if k.s == 'd' and v[4] and k.x <= now then k.s, k.n = '', 0 end -- see complete.lua
  k.f = math.max(f or 0, k.s == 'h' and k.t + block - 1 or k.t)
  k.live = (k.s == 'h' or k.s == 'r' or k.s == 'c' or k.s == 's') and k.x > now
  return k
end
