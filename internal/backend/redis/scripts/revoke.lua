-- revoke.lua: mark a hold, or all shares of a key, as revoked.
-- KEYS[1]=hash KEYS[2]=queue, not used KEYS[3]=shares
-- ARGV: 1 channel prefix, 2 id of this revocation, 3 and 4 '' and 0, or the elements of the reply
--       that asks for another step
-- Returns 1 revoked, now or by an earlier copy · {1, end µs, number} revoked, and not all holders
--   are notified: of the shares with this end, this number · 0 not held
-- The script does not free the key, because the handler may still run. But the hold can no longer
-- be renewed. The key is free when the holder releases it or the lease expires.
--
-- All shares are revoked at once. Then each step notifies the holders of some of them, in the order
-- of their ends, which are fixed because a revoked share cannot be renewed. A step may come late or
-- twice: a holder that is notified only renews.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/pass.lua
-- include parts/sweep.lua
local k = load(KEYS[1])
local from, skip = ARGV[3] or '', tonumber(ARGV[4] or 0)
if from == '' then
  from = string.format('(%.0f', now)
  if ARGV[2] and string.find(k.l, ARGV[2], 1, true) then -- a repeat: the key may have another holder now
    return k.s == 's' and k.v and {1, from, 0} or 1
  end
  if k.bad == 'x' or k.bad == 'd' then return {err = 'BADFIELD ' .. k.bad} end
  local held = k.live and (k.s == 'h' or k.s == 's')
  if held and k.s == 's' then
    -- A share counts as held if u cannot be read, or if more shares have expired. Then the command
    -- that removes the expired shares ends the revocation.
    local u = number(call('HGET', KEYS[1], 'u'), exact) or math.huge
    local expired = call('ZRANGE', KEYS[3], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 400)
    for _, member in ipairs(expired) do
      local _, _, weight = share_of(member)
      if string.byte(member) ~= 99 then u = u - (weight or 0) end -- 99 is 'c': the share cools and has no handler
    end
    held = u > 0
  end
  if held then
    k.v = true
    call('HDEL', KEYS[1], 'v') -- first, see renew.lua
    call('HSET', KEYS[1], 'v', '1') -- planted:revoked
  end
  if ARGV[2] then remember(k.l, ARGV[2]) end -- otherwise a late duplicate would revoke the next hold
  if not held then return 0 end
  if k.s == 'h' then call('PUBLISH', ARGV[1] .. k.o, 'v' .. k.h) end
end
if k.s ~= 's' or not k.v then return 1 end
local shares = call('ZRANGE', KEYS[3], from, '+inf', 'BYSCORE', 'LIMIT', skip, share_step, 'WITHSCORES')
local list = {''}
for i = 1, #shares, 2 do
  local field = string.byte(shares[i]) ~= 99 and share_of(shares[i])
  if field then list[#list + 1] = field end
  if shares[i + 1] ~= from then from, skip = shares[i + 1], 0 end
  skip = skip + 1
end
for i, value in ipairs(call('HMGET', KEYS[1], unpack(list))) do
  local locker = value and string.match(value, '^[^\n]*') or ''
  if locker ~= '' then call('PUBLISH', ARGV[1] .. locker, 'v' .. list[i]) end
end
return shares[2 * share_step] and {1, from, skip} or 1
