-- rotate.lua: release an exclusive key and request it again for the next waiter of the same
-- process. Other processes in the queue get the key first.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 grant id, 2 last token used, 3 retention ms, 4 remember the id (1|0), 5 reservation µs,
--       6 channel prefix, 7 PUBLISH counts all receivers (1|0), 8 id of the next request,
--       9 locker id, 10 lease µs, 11 enter the queue (1|0), 12 holder text,
--       13 retention ms of an abandoned hold, 14 retention ms of the queue
-- Returns a list: released (1) or not the holder, no effect (0), followed by the elements that
-- acquire.lua would return for the next request
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/grant.lua
-- include parts/pass.lua
-- include parts/free.lua
local grant_id, request, locker = ARGV[1], ARGV[8], ARGV[9]
local k = load(KEYS[1])
if k.s ~= 'h' or k.h ~= grant_id then
  -- A repeat returns the grant of the next request, and never adds that request to the queue again.
  if ARGV[4] == '1' then remember(k.l, grant_id) end
  if k.s == 'h' and k.h == request and k.live and not k.v then
    call('HDEL', KEYS[1], 'h') -- first, see renew.lua; a write, because WAIT counts only the writes of its own connection
    call('HSET', KEYS[1], 'h', request)
    return {0, 1, k.t, 1, k.a and 1 or 0, k.p and 1 or nil}
  end
  return {0, 0, 0, 0, '', call('ZCARD', KEYS[2])} -- busy with 0 µs remaining, so the process sends its request again at once
end
call('PEXPIRE', KEYS[1], ARGV[3]) -- first, see renew.lua
call('HDEL', KEYS[1], 'a', 'm', 'g')
call('HSET', KEYS[1], 'f', ARGV[2])
if ARGV[4] == '1' then remember(k.l, grant_id) elseif k.l ~= '' then outlive(minute) end
if k.p then outlive(parked) end
local reserved = pass_on(ARGV[5], ARGV[6], ARGV[7])
if string.find(k.l, request, 1, true) then return {1, 5} end -- a late duplicate, and the next request has ended too
if reserved then
  if ARGV[11] == '1' then enqueue(locker .. request, ARGV[14]) end
  return {1, 0, tonumber(ARGV[5]), 0, '', call('ZCARD', KEYS[2])}
end
local f = math.max(tonumber(ARGV[2]), k.t) -- k.t is greater if this is a late duplicate and its id was granted again
return {1, unpack(grant(f, nil, false, request, locker, ARGV[10], ARGV[12], ARGV[13], k.p))}
