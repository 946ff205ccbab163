-- take.lua comes first in acquire.lua: a key without data becomes a plain hold, see plain.lua.
if ARGV[10] == '1' then
  local time = redis.call('TIME')
  local token = time[1] .. string.format('%06d', tonumber(time[2]))
  if redis.call('SET', KEYS[1], 'h' .. ARGV[1] .. ' ' .. token .. ' ' .. ARGV[3] .. ' 0 ' .. ARGV[2] .. ' ' .. ARGV[5], 'PX', ARGV[6], 'NX') then
    return token
  end
end
