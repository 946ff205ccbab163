-- renew.lua: extend leases.
-- KEYS = up to 100 hashes. For each hash: grant_id · lease µs · retention_ms of an abandoned hold ·
--   handed_off: '' or "token holder-text" of the hold that the key was handed off to
-- Returns for each hash 1 kept · 0 lost · 2 revoked · 3 revoked for a newer hold, or a string if the key cannot be read: the
-- name of the field that is not a number, or the error of the server. Such a key is not changed,
-- and does not end the script for the others. An expired lease is never revived, and no lease is
-- made shorter.
-- include parts/plain.lua
-- include parts/key.lua
local now = clock()

-- Renews a plain hold in place.
local function renew_plain(key, p, lease, retention_ms, handed_off)
  local token, holder, length, ends = p.t, p.m, tonumber(p.d), end_of(p, now)
  if ends <= now then return 0 end
  if now + lease > ends then ends, length = now + lease, lease elseif lease > 0 then length = ends - now end -- as below
  local next_token, next_holder = string.match(handed_off, '^(%d+) (.*)$')
  if next_token and tonumber(next_token) >= tonumber(token) then token, holder = next_token, next_holder end -- as below
  local form, fingerprint = 'h', p.g or ''
  if p.n then form, holder = 'o', #fingerprint .. ' ' .. fingerprint .. holder end
  call('PEXPIRE', key, retention_ms) -- first, see below
  call('SET', key, form .. p.h .. ' ' .. token .. string.format(' %.0f %.0f ', length, ends) .. p.o .. ' ' .. holder, 'PX', retention_ms)
  return 1
end

local function renew(key, grant_id, lease, retention_ms, handed_off)
  local p = parsed(key) -- first, because most holds are plain
  if p then return p.h == grant_id and renew_plain(key, p, lease, retention_ms, handed_off) or 0 end
  local v = redis.pcall('HMGET', key, 's', 'h', 'x', 'd', 'v') -- planted:renewal-of-each-key
  if v.err then return v.err end
  local state, owner, ends, length, revoked = unpack(v, 1, 5)
  ends, length = tonumber(ends or 0), tonumber(length or 0)
  if not ends or not (ends >= 0) then return 'x' end -- also nan
  if not length or not (length >= 0) then return 'd' end
  if state == held and owner == grant_id then ends = clamp(key, ends, length, now) end
  if state ~= held or owner ~= grant_id or ends <= now then return 0 end -- planted:renewal-of-own-lease
  if revoked == '1' then return 2 end
  if revoked == '2' then return 3 end
  call('PEXPIRE', key, retention_ms) -- first, because a script may continue at maxmemory if its first write needs no memory
  if now + lease > ends then call('HSET', key, 'x', now + lease, 'd', lease) end -- planted:renewal-never-shortens
  -- The last renewal is always length before the end, see force_clear.lua.
  if lease > 0 and now + lease <= ends then call('HSET', key, 'd', ends - now) end -- planted:renewal-always-seen
  if handed_off ~= '' then
    local token, holder = string.match(handed_off, '^(%d+) (.*)$')
    -- A renewal may arrive after that of a later hold, or after a raise to a greater token.
    if token and tonumber(token) >= (tonumber(call('HGET', key, 't') or 0) or 0) then call('HSET', key, 't', token, 'm', holder) end -- planted:renewal-of-latest-hold
  end
  return 1
end

local kept = {}
for i, key in ipairs(KEYS) do
  local grant_id, lease, retention_ms, handed_off = unpack(ARGV, 4 * i - 3, 4 * i)
  kept[i] = renew(key, grant_id, tonumber(lease), retention_ms, handed_off)
end
return kept
