-- revoke.lua: mark a hold as revoked.
-- KEYS[1]=hash KEYS[2]=queue, not used KEYS[3]=shares
-- ARGV: 1 channel prefix, 2 id of this revocation
-- Returns 1 revoked, now or by an earlier copy · 0 not held
-- The script does not free the key, because the handler may still run. But the hold can no longer
-- be renewed. The key is free when the holder releases it or the lease expires.
local k = load(KEYS[1])
if ARGV[2] and string.find(k.l, ARGV[2], 1, true) then return 1 end -- a repeat: the key may have another holder now
if k.bad == 'x' or k.bad == 'd' then return {err = 'BADFIELD ' .. k.bad} end
local held = k.s == 'h' and k.live
local shares = k.s == 's' and k.live and call('ZRANGE', KEYS[3], string.format('(%.0f', now), '+inf', 'BYSCORE') or {}
for _, member in ipairs(shares) do
  held = held or string.byte(member) ~= 99 -- 99 is 'c': the share cools and has no handler
end
if not held then
  if ARGV[2] then remember(k.l, ARGV[2]) end -- otherwise a late duplicate would revoke the next hold
  return 0
end
call('HDEL', KEYS[1], 'v') -- first, see renew.lua
call('HSET', KEYS[1], 'v', '1') -- planted:revoked
if ARGV[2] then remember(k.l, ARGV[2]) end
if k.s == 'h' then
  call('PUBLISH', ARGV[1] .. k.o, 'v' .. k.h)
  return 1
end
for _, member in ipairs(shares) do
  local id = string.match(member, '^(%w+)/')
  local locker = id and string.byte(member) ~= 99 and string.match(call('HGET', KEYS[1], id) or '', '^[^\n]*') or ''
  if locker ~= '' then call('PUBLISH', ARGV[1] .. locker, 'v' .. id) end
end
return 1
