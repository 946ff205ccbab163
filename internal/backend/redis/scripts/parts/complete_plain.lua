-- complete_plain.lua

-- Replaces a plain hold by a plain record, see plain.lua. Returns the reply of the script, or nil if
-- the key is not a plain hold or record. A plain hold has neither waiters nor ended ids. A record of
-- more than 2 KB is stored in a hash, because a replay copies a string twice, and inspect.lua reads
-- all of a string.
local function complete_plain(key, grant_id, record, keep_ms, token)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'string' then return nil end
  local own, id = string.sub(value, 1, 28), grant_id .. ' '
  if own == 'd' .. id then return 1 end
  if own ~= 'o' .. id then return 0 end
  local first, size, rest = string.match(value, '^o%w+ (%d+) %d+ %d+ %S+ (%d+) (.*)$')
  if not first then return nil end
  if #record <= 2048 then
    redis.call('PEXPIRE', key, keep_ms) -- first, see key.lua
    redis.call('SET', key, 'd' .. id .. first .. ' ' .. token .. ' ' .. size .. ' ' .. #rest - size .. ' ' .. rest .. record, 'PX', keep_ms)
    return 1
  end
  size = tonumber(size)
  redis.call('DEL', key) -- first, see key.lua
  redis.call('HSET', key, 's', 'd', 'e', grant_id, 'r', record, 'f', token, 'm', string.sub(rest, size + 1), 't', first, 'n', 1)
  if size > 0 then redis.call('HSET', key, 'g', string.sub(rest, 1, size)) end
  redis.call('PEXPIRE', key, keep_ms)
  return 1
end
