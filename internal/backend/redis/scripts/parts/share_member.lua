-- share_member.lua: the members of the set of shares, see shares.lua.
local share_step = 500 -- shares that one script removes, corrects or notifies, so that many shares do not block the server
local more = -1 -- reply of a script that had only the effect of a full step; it is sent again at once

-- Returns the name of the field, the limit and the weight. The name of the field is the id, with
-- "c" before it while the share cools.
local function share_of(text)
  local field, limit, weight = string.match(text, '^(%w+)/(%d+)/(%d+)/[%d/]*$')
  return field, tonumber(limit), tonumber(weight)
end

-- Reports whether the share of a member cools.
local function cools(member) return string.byte(member) == 99 end -- 99 is 'c'

-- Returns members of a set whose shares have expired, at most most.
local function expired_shares(shares, now, most)
  return call('ZRANGE', shares, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, most)
end

-- Removes members of the set of shares and their fields. Returns the sum of their weights, and the
-- part of it that was held.
local function remove_shares(hash, shares, members)
  local list, weights, weights_held = {}, 0, 0
  for _, member in ipairs(members) do
    local field, _, weight = share_of(member)
    if field then
      list[#list + 1], weights = field, weights + weight
      if not cools(member) then weights_held = weights_held + weight end
    end
  end
  if members[1] then call('ZREM', shares, unpack(members)) end
  if list[1] then call('HDEL', hash, unpack(list)) end
  return weights, weights_held
end
