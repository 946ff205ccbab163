-- done.lua comes after number.lua and before the rest of acquire.lua. It replays a record in a
-- hash, which does not need that rest. plain_acquire.lua sets stored.
local p = type(stored) == 'string' and parse(stored)
if p then unfold(KEYS[1], p) end
local v = fields(KEYS[1], 's', 'h', 'x', 'd', 't', 'f', 'a', 'g', 'l', 'n', 'r', 'p')
local fingerprint, g = ARGV[7], v[8] or ''
local differs = fingerprint ~= '' and g ~= '' and fingerprint ~= g
local n = ARGV[8] ~= 'exclusive' and number(v[10], exact) -- nil: unreadable
local record_ended = false
if v[1] == 'd' and v[3] then -- complete.lua set an end of the record
  local time = redis.call('TIME')
  record_ended = (tonumber(v[3]) or 0) <= time[1] * 1000000 + time[2]
  if record_ended then v[1], n = false, n and 0 end
end
if v[1] == 'd' then
  if n == nil then return {err = 'BADFIELD n'} end
  if ARGV[4] == '1' then redis.call('ZREM', KEYS[2], ARGV[2] .. ARGV[1]) end -- otherwise the request never entered the queue
  if differs then return {3, 1} end -- planted:other-payload
  return {2, v[11] or '', v[10] and n or 1, g, v[12] and 1 or nil}
end
