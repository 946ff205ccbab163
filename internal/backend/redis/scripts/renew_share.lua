-- renew_share.lua: extend a share.
-- KEYS[1]=hash KEYS[2]=queue, not used KEYS[3]=shares
-- ARGV: 1 text of the request, see shares.lua, 2 lease µs, 3 '', or the holder text of the hold
--       that the share was handed off to
-- Returns {1} kept · {0} lost · {2} revoked, or {string} if the key cannot be read, as renew.lua
-- does. An expired share is never revived, and no share is made shorter.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/lease.lua
-- include parts/load.lua
-- include parts/pass.lua
-- include parts/sweep.lua
-- include parts/shares.lua
local text, lease, holder = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local id = share_of(text)
local k = load(KEYS[1], true)
local till = k.s == 's' and call('ZSCORE', KEYS[3], text)
if not till or tonumber(till) <= now then return {0} end -- planted:renewal-of-own-share
if k.bad then return {k.bad} end
if k.v then return {2} end
local v = call('HMGET', KEYS[1], 'd', id)
k.d = math.max(tonumber(v[1] or 0) or 0, lease)
keep_shares(k) -- first, because a script may continue at maxmemory if its first write needs no memory
call('ZADD', KEYS[3], 'GT', now + lease, text)
if now + lease > k.x then call('HSET', KEYS[1], 'x', now + lease, 'd', k.d) else call('HSET', KEYS[1], 'd', k.d) end
if holder ~= '' then
  local locker = string.match(v[2] or '', '^[^\n]*')
  call('HSET', KEYS[1], id, locker .. '\n' .. string.format('%.0f', now) .. '\n' .. holder, 'm', holder, 'o', locker)
end
return {1}
