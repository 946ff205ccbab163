-- call_parking_locker.lua: notify the locker that parked an entry of a key most recently.
-- channels: prefix of the channels of lockers · wake: the notification
-- Returns the number of subscribers that received it. In a Cluster it counts only those of one
-- node.
local hash = unpack(KEYS)
local channels, wake = unpack(ARGV)
local parking_locker = redis.pcall('HGET', hash, 'p') -- pcall, because a plain hold is a string without fields
if type(parking_locker) ~= 'string' then return 0 end
return redis.call('PUBLISH', channels .. parking_locker, wake)
