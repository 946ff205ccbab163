-- clear.lua: KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 retention ms 2 claim window µs 3 channel prefix 4 PUBLISH counts everybody (1|0)
-- Returns 1 forgotten, or there was nothing to forget · 0 it is held. The token floor stays.
local k = load(KEYS[1])
if k.s == 'h' and k.live then return 0 end
if k.f == 0 then return 1 end
call('PEXPIRE', KEYS[1], ARGV[1])
call('HDEL', KEYS[1], 'a', 'm', 'g', 'n', 'r', 'e')
if k.s == 'h' then call('HSET', KEYS[1], 'f', k.f) end -- of a hold that ran out: all that it may have used
if k.s ~= 'r' then pass_on(ARGV[2], ARGV[3], ARGV[4]) end
return 1
