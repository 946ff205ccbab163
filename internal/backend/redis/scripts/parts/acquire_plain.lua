-- acquire_plain.lua

-- Stores a plain hold for a key without data, see plain.lua. Returns the reply of the script: the
-- token, or a plain record as it is stored. Otherwise it returns nil, and for a once key the reply to
-- GET: a string, or an error if the key is a hash.
local function acquire_plain(key, request, locker, lease, holder, retention_ms, fingerprint, mode)
  local form, rest, stored = 'h', holder, nil
  if mode ~= 'exclusive' then
    stored = redis.pcall('GET', key) -- before SET, because a plain record needs no other command
    if type(stored) == 'string' and string.byte(stored) == 100 then return stored end -- 100 is 'd', a plain record; the client compares the fingerprints
    form, rest = 'o', #fingerprint .. ' ' .. fingerprint .. holder
  end
  if not stored then
    local time = redis.call('TIME')
    local token = time[1] .. string.format('%06d', tonumber(time[2]))
    if redis.call('SET', key, form .. request .. ' ' .. token .. ' ' .. lease .. ' 0 ' .. locker .. ' ' .. rest, 'PX', retention_ms, 'NX') then
      return token
    end
  end
  return nil, stored
end
