-- fence.lua
-- KEYS: 1 data of the fence, "token hold" · 2 the resource, in the same slot, if there is a command
-- ARGV: 1 token · 2 hold · 3 greatest age of a hold without data of the fence, in ms
--       4 TTL of the data of the fence, in ms; longer than 3 of any writer
--       5 command, if any · 6… its arguments after the key
-- Replies: {1, the command's reply} accepted · {0, the newest token seen, or 0 without data} refused
-- Tokens are about the server's time in µs. So the age of a hold is known without data.
local token = tonumber(ARGV[1])
local memory = redis.call('GET', KEYS[1])
if memory then
  local seen, hold = string.match(memory, '^(%d+) (.+)$')
  if not seen then return redis.error_reply('FENCE the memory of the fence does not decode') end
  if token < tonumber(seen) or (token == tonumber(seen) and ARGV[2] ~= hold) then return {0, seen} end
else
  local time = redis.call('TIME')
  if token < time[1] * 1000000 + time[2] - ARGV[3] * 1000 then return {0, '0'} end
end
-- SET comes before the command: a write without the SET would not be fenced, and maxmemory may
-- refuse the SET.
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[4])
if not ARGV[5] then return {1} end
return {1, redis.call(ARGV[5], KEYS[2], unpack(ARGV, 6))}
