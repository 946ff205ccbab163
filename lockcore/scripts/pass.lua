-- pass.lua
-- A copy of this ask may arrive after its end: remember it, so that it is never granted to nobody. known: the hash exists.
local function remember(l, known, id)
  if string.find(l, id, 1, true) then return end
  call('HDEL', KEYS[1], 'l') -- first, see renew.lua
  call('HSET', KEYS[1], 'l', string.sub(l .. id, -16 * 26))
  if not known then call('PEXPIRE', KEYS[1], 60000) end -- no key without a TTL
end

-- Reserve the key for the first in line that can be told; true if it is reserved. Where PUBLISH counts the receivers of one node
-- only (Cluster), everybody counts as told and the claim window decides.
local function reserve(window, channel, count)
  while true do
    local first = call('ZPOPMIN', KEYS[2])
    if not first[1] then return false end
    clock()
    local o, ask = string.sub(first[1], 1, 26), string.sub(first[1], 27)
    if call('PUBLISH', channel .. o, 'w' .. ask) > 0 or count == '0' then
      call('HSET', KEYS[1], 's', 'r', 'h', ask, 'o', o, 'x', now + tonumber(window), 'd', window)
      return true
    end
  end
end

-- The same, or leave it free.
local function pass_on(window, channel, count)
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v')
  return reserve(window, channel, count)
end
