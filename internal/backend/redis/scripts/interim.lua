-- interim.lua: store the interim answer of a once key that a process has transferred.
-- grant_id: id of the grant that was transferred · attempt: number of its run · answer · channels:
--   their prefix
-- Returns 1 stored · 0 the hold has ended
-- or the error BADFIELD and the name of a field that cannot be read.
-- An adopted hold remembers the id of the grant before it, and its run has the same number. A later
-- run has a greater number, unless the runs were counted from 1 again, after the end of a record or
-- a clear.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
local hash, queue = unpack(KEYS)
local grant_id, attempt, answer, channels = unpack(ARGV)
local k = load(hash, true)
if k.bad then return {err = 'BADFIELD ' .. k.bad} end
if k.state ~= held or not k.live or k.attempts ~= tonumber(attempt) then return 0 end -- planted:interim-of-own-run
if k.owner ~= grant_id and not string.find(k.ended, grant_id, 1, true) then return 0 end
fields(hash, 's') -- a string becomes a hash
call('HSET', hash, 'r', answer)
-- A waiter may end with the answer. It stays in the queue, because it may also wait for the record.
notify_all(queue, channels) -- planted:answer-told
return 1
