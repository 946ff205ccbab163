-- free.lua
-- Frees the key, and reserves it if a waiter in the queue can be notified. Returns the id of the
-- request, or false.
local function pass_on(reservation, channel, counts_all)
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v', 'r')
  return reserve(reservation, channel, counts_all)
end
