-- plain_complete.lua is the first part of complete.lua. It replaces a plain hold by a plain record,
-- see plain.lua. A plain hold has neither waiters nor ended ids. A record of more than 2 KB is
-- stored in a hash, because a replay copies a string twice, and inspect.lua reads all of a string.
if ARGV[7] == '1' then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'string' then
    local own, id = string.sub(value, 1, 28), ARGV[1] .. ' '
    if own == 'd' .. id then return 1 end
    if own ~= 'o' .. id then return 0 end
    local t, g, rest = string.match(value, '^o%w+ (%d+) %d+ %d+ %S+ (%d+) (.*)$')
    if t and #ARGV[2] <= 2048 then
      redis.call('PEXPIRE', KEYS[1], ARGV[3]) -- first, see renew.lua
      redis.call('SET', KEYS[1], 'd' .. id .. t .. ' ' .. ARGV[4] .. ' ' .. g .. ' ' .. #rest - g .. ' ' .. rest .. ARGV[2], 'PX', ARGV[3])
      return 1
    elseif t then
      g = tonumber(g)
      redis.call('DEL', KEYS[1]) -- first, see renew.lua
      redis.call('HSET', KEYS[1], 's', 'd', 'e', ARGV[1], 'r', ARGV[2], 'f', ARGV[4], 'm', string.sub(rest, g + 1), 't', t, 'n', 1)
      if g > 0 then redis.call('HSET', KEYS[1], 'g', string.sub(rest, 1, g)) end
      redis.call('PEXPIRE', KEYS[1], ARGV[3])
      return 1
    end
  end
end
