-- revoke.lua: mark a hold, or all shares of a key, as revoked.
-- channels: their prefix · id of this revocation · from, skip: '' and 0, or the elements of the
--   reply that asks for another step · before: 0, or revoke only a hold of the key alone whose
--   token is smaller, for a newer one · seen: 0, or revoke nothing whose token is greater
-- Returns 1 revoked, now or by an earlier copy · {1, end µs, number} revoked, and not all holders
--   are notified: of the shares with this end, this number · 0 not held, or with a token above seen
-- The script does not free the key, because the handler may still run. But the hold can no longer
-- be renewed. The key is free when the holder releases it or the lease expires.
--
-- All shares are revoked at once. Then each step notifies the holders of some of them, in the order
-- of their ends, which are fixed because a revoked share cannot be renewed. A step may come late or
-- twice: a holder that is notified only renews.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/share_member.lua
local hash, shares = unpack(KEYS)
local channels, id, from, skip, before, seen = unpack(ARGV)
local k = load(hash)
skip, before, seen = tonumber(skip), tonumber(before), tonumber(seen)
if from == '' then
  from = string.format('(%.0f', k.now)
  if before == 0 and string.find(k.ended, id, 1, true) then -- a repeat: the key may have another holder now
    return k.state == shared and k.revoked and {1, from, 0} or 1
  end
  if k.bad == 'x' or k.bad == 'd' then return {err = 'BADFIELD ' .. k.bad} end
  local is_held = k.live and (k.state == held or k.state == shared) and (seen == 0 or k.token <= seen) -- planted:revoke-seen
  if before > 0 then is_held = k.live and k.state == held and k.token < before end -- planted:revoke-older
  if is_held and k.state == shared then
    -- A share is held if u cannot be read, or if more shares have expired. Then the command that
    -- removes the expired shares ends the revocation.
    local weights_held = number(call('HGET', hash, 'u'), exact) or math.huge
    for _, member in ipairs(expired_shares(shares, k.now, 400)) do
      local _, _, weight = share_of(member)
      if not cools(member) then weights_held = weights_held - (weight or 0) end -- a share that cools has no handler
    end
    is_held = weights_held > 0
  end
  if is_held then
    k.revoked = true
    call('HDEL', hash, 'v') -- first, see key.lua
    call('HSET', hash, 'v', before > 0 and '2' or '1') -- planted:revoked
  end
  -- Otherwise a late duplicate would revoke the next hold. That has a token above before, and many
  -- revocations must not displace other ids.
  -- With seen, a repeat revokes nothing newer either, and its reply must not say that it did.
  if before == 0 and (is_held or seen == 0) then remember(hash, k.ended, id) end
  if not is_held then return 0 end
  if k.state == held then call('PUBLISH', channels .. k.locker, 'v' .. k.owner) end
end
if k.state ~= shared or not k.revoked then return 1 end
local some = call('ZRANGE', shares, from, '+inf', 'BYSCORE', 'LIMIT', skip, share_step, 'WITHSCORES')
local names = {''} -- of the fields of the held shares
for i = 1, #some, 2 do
  local field = not cools(some[i]) and share_of(some[i])
  if field then names[#names + 1] = field end
  if some[i + 1] ~= from then from, skip = some[i + 1], 0 end
  skip = skip + 1
end
for i, data in ipairs(call('HMGET', hash, unpack(names))) do
  local locker = data and string.match(data, '^[^\n]*') or ''
  if locker ~= '' then call('PUBLISH', channels .. locker, 'v' .. names[i]) end
end
return some[2 * share_step] and {1, from, skip} or 1
