-- free.lua
-- Free the key, and reserve it if the queue is not empty.
local function pass_on(window, channel, count)
  call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v')
  return reserve(window, channel, count)
end
