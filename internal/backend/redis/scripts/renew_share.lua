-- renew_share.lua: extend a share.
-- text of the request, see shares.lua · lease µs · holder: '', or the holder text of the hold that
--   the share was handed off to
-- Returns {1} kept · {0} lost · {2} revoked, or {string} if the key cannot be read, as renew.lua
-- does. An expired share is never revived, and no share is made shorter.
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/key.lua
-- include parts/load.lua
-- include parts/queue.lua
-- include parts/share_member.lua
-- include parts/rate.lua
-- include parts/shares.lua
local hash, shares = unpack(KEYS)
local text, lease, holder = unpack(ARGV)
lease = tonumber(lease)
local key = {hash = hash, shares = shares}
local id = share_of(text)
local k = load(hash, true)
local now = k.now
local ends = k.state == shared and call('ZSCORE', shares, text)
if not ends or tonumber(ends) <= now then return {0} end -- planted:renewal-of-own-share
if k.bad then return {k.bad} end
if k.revoked then return {2} end
local length, data = unpack(call('HMGET', hash, 'd', id), 1, 2)
k.length = math.max(tonumber(length or 0) or 0, lease)
keep_shares(key, k) -- first, because a script may continue at maxmemory if its first write needs no memory
call('ZADD', shares, 'GT', now + lease, text)
if now + lease > k.ends then call('HSET', hash, 'x', now + lease, 'd', k.length) else call('HSET', hash, 'd', k.length) end
if holder ~= '' then
  local locker = string.match(data or '', '^[^\n]*')
  call('HSET', hash, id, locker .. '\n' .. string.format('%.0f', now) .. '\n' .. holder, 'm', holder, 'o', locker)
end
return {1}
