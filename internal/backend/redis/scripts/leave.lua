-- leave.lua: withdraw a request that never ran: its queue entry, its reservation or its grant. An
-- abandoned key stays abandoned. If no request waits for the key, and it may have parked entries, the
-- locker that parked the last one is notified. Its release saw a reservation, and did not report them.
-- KEYS[1]=hash KEYS[2]=queue KEYS[3]=shares
-- ARGV: 1 request id 2 locker id 3 retention ms 4 remember the id (1|0) 5 reservation µs
--       6 channel prefix 7 PUBLISH counts all receivers (1|0) 8 notification
-- Returns {1} the key was held by the request, or reserved for it · {0} it was not
local request = ARGV[1]
local k = load(KEYS[1])
local left = call('ZREM', KEYS[2], ARGV[2] .. request) == 1
local ours = k.h == request and (k.s == 'h' or k.s == 'r')
if ours and not k.a then call('PEXPIRE', KEYS[1], ARGV[3]) end
if ARGV[4] == '1' then
  if ours or not k.bad then remember(k.l, request) end -- an unreadable hash grants nothing, and its TTL must not grow
elseif ours and k.l ~= '' then
  outlive(minute)
end
if ours and k.p then outlive(parked) end
if not ours then -- planted:leaves-with-turn
  if k.s == 's' then
    k = load_shares()
    if k.s == 's' and not k.bad and not k.v then -- it may have kept the requests behind it, and parked entries, out
      local served = serve(k, '', ARGV[5], ARGV[6], ARGV[7]) -- planted:writer-left
      if k.p and left and served == 0 and call('ZCARD', KEYS[2]) == 0 then call('PUBLISH', ARGV[6] .. k.p, ARGV[8]) end
    else
      pass_phase(k, ARGV[5], ARGV[6], ARGV[7])
    end
  end
  return {0}
end
if k.s == 'h' then
  if k.n > 0 then call('HSET', KEYS[1], 'n', k.n - 1) end
  if not k.a then call('HDEL', KEYS[1], 'm', 'g') end
end
local reserved
reserved = pass_on(ARGV[5], ARGV[6], ARGV[7]) -- planted:turn-passed-on
if k.p and not reserved then call('PUBLISH', ARGV[6] .. k.p, ARGV[8]) end
return {1}
