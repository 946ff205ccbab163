-- load.lua: all there is to know of a key.
local function load(key)
  clock()
  local v = call('HMGET', key, 's', 'h', 'o', 'x', 'd', 'm', 't', 'f', 'n', 'v', 'a', 'g', 'e', 'l')
  local k = {
    s = v[1] or '', h = v[2] or '', o = v[3] or '', x = clamp(key, tonumber(v[4] or 0), tonumber(v[5] or 0)), m = v[6] or '',
    t = tonumber(v[7] or 0), n = tonumber(v[9] or 0), v = v[10] == '1', a = v[11] == '1', g = v[12] or '', e = v[13] or '',
    l = v[14] or '',
  }
  k.f = math.max(tonumber(v[8] or 0), k.s == 'h' and k.t + block - 1 or k.t)
  k.live = (k.s == 'h' or k.s == 'r' or k.s == 'p') and k.x > now
  return k
end
