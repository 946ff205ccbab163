-- renew.lua: KEYS = up to 100 hashes; ARGV: for each its hold, lease µs, retention ms of an abandoned hold, and empty or
--   "token age who" of the tenure that the key was handed over to: age in µs
-- Returns for each 1 kept · 0 lost · 2 revoked. A lease that ran out is never revived, and none is made shorter.
clock()
local kept = {}
for i, key in ipairs(KEYS) do
  local hold, lease, news = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2]), ARGV[4 * i]
  local v = call('HMGET', key, 's', 'h', 'x', 'd', 'v')
  local x = clamp(key, tonumber(v[3] or 0), tonumber(v[4] or 0))
  if v[1] ~= 'h' or v[2] ~= hold or x <= now then
    kept[i] = 0
  elseif v[5] == '1' then
    kept[i] = 2
  else
    call('PEXPIRE', key, ARGV[4 * i - 1]) -- first: a script whose first write needs no memory may go on at maxmemory
    if now + lease > x then call('HSET', key, 'x', now + lease, 'd', lease) end
    if news ~= '' then
      local t, age, who = string.match(news, '^(%d+) (%d+) (.*)$')
      if t then call('HSET', key, 't', t, 'b', now - age, 'm', who) end
    end
    kept[i] = 1
  end
end
return kept
