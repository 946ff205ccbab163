-- call_waker.lua: notify the locker that parked an entry of a key most recently.
-- KEYS[1]=hash
-- ARGV: 1 channel prefix, 2 notification
-- Returns the number of subscribers that received it. In a Cluster it counts only those of one
-- node.
local p = redis.pcall('HGET', KEYS[1], 'p') -- pcall, because a plain hold is a string without fields
if type(p) ~= 'string' then return 0 end
return redis.call('PUBLISH', ARGV[1] .. p, ARGV[2])
