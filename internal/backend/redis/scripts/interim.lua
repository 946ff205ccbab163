-- interim.lua: store the interim answer of a once key that a process has handed over.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 id of the grant that was handed over, 2 number of its run, 3 answer, 4 channel prefix
-- Returns 1 stored · 0 the hold has ended
-- or the error BADFIELD and the name of a field that cannot be read.
-- An adopted hold remembers the id of the grant before it, and its run has the same number. A later
-- run has a greater number, unless the runs were counted from 1 again, after the end of a record or
-- a clear.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
local k = load(KEYS[1], true)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
if k.s ~= 'h' or not k.live or k.n ~= tonumber(ARGV[2]) then return 0 end -- planted:interim-of-own-run
if k.h ~= ARGV[1] and not string.find(k.l, ARGV[1], 1, true) then return 0 end
fields(KEYS[1], 's') -- a string becomes a hash
call('HSET', KEYS[1], 'r', ARGV[3])
-- Every waiter is notified, because it may end with the answer. It stays in the queue, because it
-- may also wait for the record. Beyond the first 1000, waiters receive the answer with their next
-- request, as in complete.lua.
for _, w in ipairs(call('ZRANGE', KEYS[2], 0, 999)) do
  call('PUBLISH', ARGV[4] .. string.sub(w, 1, -27), 'w' .. string.sub(w, -26)) -- planted:answer-told
end
return 1
