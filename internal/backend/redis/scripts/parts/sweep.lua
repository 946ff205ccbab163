-- sweep.lua
local share_step = 500 -- shares that one script removes, corrects or notifies, so that many shares do not block the server
local more = -1 -- reply of a script that had only the effect of a full step; it is sent again at once

-- Returns the name of the field, the limit and the weight. The name of the field is the id, with
-- "c" before it while the share cools.
local function share_of(text)
  local field, limit, weight = string.match(text, '^(%w+)/(%d+)/(%d+)/$')
  return field, tonumber(limit), tonumber(weight)
end

-- Removes members of the set of shares and their fields. Returns the sum of their weights, and the
-- part of it that was held.
local function remove_shares(set, members)
  local list, c, u = {}, 0, 0
  for _, member in ipairs(members) do
    local field, _, weight = share_of(member)
    if field then
      list[#list + 1], c = field, c + weight
      if string.byte(member) ~= 99 then u = u + weight end -- 99 is 'c': the share cools
    end
  end
  if members[1] then call('ZREM', set, unpack(members)) end
  if list[1] then call('HDEL', KEYS[1], unpack(list)) end
  return c, u
end
