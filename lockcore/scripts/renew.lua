-- renew.lua: KEYS = up to 100 hashes; ARGV: for each its hold, lease µs, retention ms of an abandoned hold, and empty or
--   "token age who" of the tenure that the key was handed over to: age in µs
-- Returns for each 1 kept · 0 lost · 2 revoked. A lease that ran out is never revived, and none is made shorter.
local kept = {}
for i, key in ipairs(KEYS) do
  local hold, lease = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2])
  local k = load(key)
  if k.s ~= 'h' or k.h ~= hold or not k.live then
    kept[i] = 0
  elseif k.v then
    kept[i] = 2
  else
    redis.call('PEXPIRE', key, ARGV[4 * i - 1]) -- first: a script whose first write needs no memory may go on at maxmemory
    if now + lease > k.x then redis.call('HSET', key, 'x', int(now + lease), 'd', int(lease)) end
    local t, age, who = string.match(ARGV[4 * i], '^(%d+) (%d+) (.*)$')
    if t then redis.call('HSET', key, 't', t, 'b', int(now - age), 'm', who) end
    kept[i] = 1
  end
end
return kept
