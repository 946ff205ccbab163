-- renew.lua: extend leases.
-- KEYS = up to 100 hashes
-- ARGV: for each hash its grant id, lease µs, retention ms of an abandoned hold, and '' or
--   "token holder-text" of the hold that the key was handed off to
-- Returns for each hash 1 kept · 0 lost · 2 revoked, or a string if the key cannot be read: the
-- name of the field that is not a number, or the error of the server. Such a key is not changed,
-- and does not end the script for the others. An expired lease is never revived, and no lease is
-- made shorter.
-- include parts/plain.lua
-- include parts/lease.lua
clock()

-- Renews a plain hold in place.
local function renew_plain(key, p, lease, retention, handed_off)
  local t, m, d, x = p.t, p.m, tonumber(p.d), end_of(p)
  if x <= now then return 0 end
  if now + lease > x then x, d = now + lease, lease elseif lease > 0 then d = x - now end -- as below
  local token, holder = string.match(handed_off, '^(%d+) (.*)$')
  if token then t, m = token, holder end
  local form, g = 'h', p.g or ''
  if p.n then form, m = 'o', #g .. ' ' .. g .. m end
  call('PEXPIRE', key, retention) -- first, see below
  call('SET', key, form .. p.h .. ' ' .. t .. string.format(' %.0f %.0f ', d, x) .. p.o .. ' ' .. m, 'PX', retention)
  return 1
end

-- hold is the id of the grant.
local function renew(key, hold, lease, retention, handed_off)
  local p = plain(key) -- first, because most holds are plain
  if p then return p.h == hold and renew_plain(key, p, lease, retention, handed_off) or 0 end
  local v = redis.pcall('HMGET', key, 's', 'h', 'x', 'd', 'v') -- planted:renewal-of-each-key
  local x, d = tonumber(v[3] or 0), tonumber(v[4] or 0)
  if v.err then return v.err end
  if not x or not (x >= 0) then return 'x' end -- also nan
  if not d or not (d >= 0) then return 'd' end
  if v[1] == 'h' and v[2] == hold then x = clamp(key, x, d) end
  if v[1] ~= 'h' or v[2] ~= hold or x <= now then return 0 end -- planted:renewal-of-own-lease
  if v[5] == '1' then return 2 end
  call('PEXPIRE', key, retention) -- first, because a script may continue at maxmemory if its first write needs no memory
  if now + lease > x then call('HSET', key, 'x', now + lease, 'd', lease) end -- planted:renewal-never-shortens
  -- The last renewal is always d before the end x, see force_clear.lua.
  if lease > 0 and now + lease <= x then call('HSET', key, 'd', x - now) end -- planted:renewal-always-seen
  if handed_off ~= '' then
    local t, holder = string.match(handed_off, '^(%d+) (.*)$')
    if t then call('HSET', key, 't', t, 'm', holder) end
  end
  return 1
end

local kept = {}
for i, key in ipairs(KEYS) do
  kept[i] = renew(key, ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2]), ARGV[4 * i - 1], ARGV[4 * i])
end
return kept
