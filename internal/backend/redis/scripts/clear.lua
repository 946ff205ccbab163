-- clear.lua: free a key that is not held, and forget its record.
-- KEYS[1]=hash KEYS[2]=queue KEYS[3]=shares
-- ARGV: 1 retention ms, 2 reservation µs, 3 channel prefix, 4 PUBLISH counts all receivers (1|0),
--       5 the token that inspect.lua returned, 'bad' if the hash could not be read, or '',
--       6 the key was done then (1|0), 7 id of this clear, or ''
-- Returns 1 cleared, or nothing to clear · 0 held · 2 changed since inspect.lua read it · more, see
--   sweep.lua
-- The greatest token is kept if it can be read. A hold whose end cannot be read counts as not held,
-- because its holder cannot renew it.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/pass.lua
-- include parts/free.lua
-- include parts/sweep.lua
-- include parts/shares.lua
if ARGV[7] ~= '' and string.find(load(KEYS[1]).l, ARGV[7], 1, true) then return 1 end -- a repeat: the key may have changed since the first copy
local k = load_shares()
if k.more then return more end
call('ZCARD', KEYS[2]) -- before most writes: a queue of another type ends the script here
pass_phase(k, ARGV[2], ARGV[3], ARGV[4])
if ARGV[5] == 'bad' then
  if not k.bad then return 2 end
elseif ARGV[5] ~= '' and ((k.s == 'h' and k.t or k.f) ~= tonumber(ARGV[5]) or (k.s == 'd') ~= (ARGV[6] == '1')) then
  return 2
end
if k.s == 'h' and k.live or k.u > 0 then return 0 end
if k.s == 's' then -- all shares cool, or the key cannot be read
  local members, shares = {}, call('ZRANGE', KEYS[3], 0, share_step - 1, 'WITHSCORES')
  for i = 1, #shares, 2 do
    if k.bad and string.byte(shares[i]) ~= 99 and tonumber(shares[i + 1]) > now then return 0 end -- 99 is 'c': the share cools
    members[#members + 1] = shares[i]
  end
  k.c = k.c - remove_shares(KEYS[3], members)
  if members[share_step] then
    if not k.bad then call('HSET', KEYS[1], 'c', k.c) end
    return more
  end
end
if call('PTTL', KEYS[1]) == -2 then
  if ARGV[7] ~= '' then remember('', ARGV[7]) end -- otherwise a late duplicate would clear newer data of the key
  return 1
end
call('PEXPIRE', KEYS[1], ARGV[1])
call('HDEL', KEYS[1], 'a', 'm', 'g', 'n', 'r', 'e')
if k.bad then call('HDEL', KEYS[1], 't', 'f') end
if k.s == 'h' or k.bad then call('HSET', KEYS[1], 'f', k.f) end -- an expired hold may have used all its tokens
if k.s == 'h' and k.bad then call('PUBLISH', ARGV[3] .. k.o, 'v' .. k.h) end -- the holder then renews at once, and the reply is that its lease is lost
if k.s == 's' then call('HDEL', KEYS[1], 'c', 'u', 'w') end
if k.s ~= 'r' or k.bad then
  pass_on(ARGV[2], ARGV[3], ARGV[4])
else
  outlive(math.ceil(ARGV[2] / 1000) + minute) -- as in pass.lua
end
if k.p then outlive(parked) end
if ARGV[7] ~= '' then remember(k.l, ARGV[7]) end
return 1
