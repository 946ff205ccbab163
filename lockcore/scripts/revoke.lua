-- revoke.lua: KEYS[1]=hash; ARGV: 1 channel prefix
-- Returns 1 revoked · 0 nobody holds it. The key is not freed: the handler may still run. It is renewed no more, and free
-- when the holder lets go or the lease runs out.
local k = load(KEYS[1])
if k.s ~= 'h' or not k.live then return 0 end
redis.call('HDEL', KEYS[1], 'v') -- first, see renew.lua
redis.call('HSET', KEYS[1], 'v', '1')
redis.call('PUBLISH', ARGV[1] .. k.o, 'v' .. k.h)
return 1
