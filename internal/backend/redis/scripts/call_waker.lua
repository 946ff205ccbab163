-- call_waker.lua: notify the locker that parked an entry of a key most recently.
-- KEYS[1]=hash
-- ARGV: 1 channel prefix 2 notification
-- Returns how many subscribers received it: in a Cluster only those of one node.
local p = redis.pcall('HGET', KEYS[1], 'p') -- a plain hold is a string, and has no fields
if type(p) ~= 'string' then return 0 end
return redis.call('PUBLISH', ARGV[1] .. p, ARGV[2])
