-- grant_many.lua: release plain holds and acquire keys without data, for a group. See plain.lua.
-- KEYS: keys to release, then keys to acquire
-- ARGV: number of keys to release; the grant id of each; then for each key to acquire the request
--       id, "<lease µs> 0 <locker id> <holder text>", and the retention ms
-- No duplicate of a command may exist, and the clock must be past the tokens of the released holds.
-- Returns the token of all new holds, as text ('' without keys to acquire), then the positions in
-- KEYS of the keys that it did not change. The requests for those keys are sent again with
-- release.lua or acquire.lua.
local releases, reply, token = tonumber(ARGV[1]), {''}, nil
if #KEYS > releases then -- before all writes, because an error of TIME ends the script
  local time = redis.call('TIME')
  token = time[1] .. string.format('%06d', tonumber(time[2]))
  reply[1] = token
end
for i = 1, releases do
  local grant, value = ARGV[1 + i], redis.pcall('GET', KEYS[i])
  if type(value) == 'string' and string.sub(value, 1, 28) == 'h' .. grant .. ' ' then -- planted:grant-many-own-hold
    value = redis.pcall('DEL', KEYS[i])
  end
  if value ~= 1 then reply[#reply + 1] = i end
end
local at = 2 + releases
for i = releases + 1, #KEYS do
  local request, terms, retention_ms = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local set = redis.pcall('SET', KEYS[i], 'h' .. request .. ' ' .. token .. ' ' .. terms, 'PX', retention_ms, 'NX')
  if not set or set.err then -- planted:grant-many-tells
    reply[#reply + 1] = i
  end
  at = at + 3
end
return reply
