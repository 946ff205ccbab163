-- grant.lua
-- Adds a request to the queue, once.
local function enqueue(member, retention)
  call('ZADD', KEYS[2], 'NX', now, member)
  call('PEXPIRE', KEYS[2], retention) -- planted:queue-ttl
end

-- Grants the key to a request. Any request may take a key that is free or has expired. A rule "only
-- the first of the queue" would block the key if that process is dead. f is the greatest token that
-- may have been used. n is the number of this run of a once key, nil for an exclusive key. a: the
-- previous hold was abandoned. p: the key may have parked entries.
local function grant(f, n, a, request, locker, lease, holder, retention, p)
  local t = string.format('%.0f', math.max(f + 1, now)) -- planted:token-floor
  call('HSET', KEYS[1], 's', 'h', 'h', request, 'o', locker, 'x', now + tonumber(lease), 'd', lease, 'm', holder, 't', t)
  if n then call('HSET', KEYS[1], 'n', n) end
  call('PEXPIRE', KEYS[1], retention)
  return {1, tonumber(t), n or 1, a and 1 or 0, p and 1 or nil}
end
