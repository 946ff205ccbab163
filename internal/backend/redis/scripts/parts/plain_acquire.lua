-- plain_acquire.lua is the first part of acquire.lua. It stores a plain hold for a key without
-- data, or returns a plain record as it is stored. See plain.lua.
local stored -- the reply to GET for a once key: false, a string, or an error if the key is a hash
if ARGV[10] == '1' then
  local form, rest = 'h', ARGV[5]
  if ARGV[8] ~= 'exclusive' then
    stored = redis.pcall('GET', KEYS[1]) -- before SET, because a plain record needs no other command
    if type(stored) == 'string' and string.byte(stored) == 100 then return stored end -- 100 is 'd', a plain record; the client compares the fingerprints
    form, rest = 'o', #ARGV[7] .. ' ' .. ARGV[7] .. rest
  end
  if not stored then
    local time = redis.call('TIME')
    local token = time[1] .. string.format('%06d', tonumber(time[2]))
    if redis.call('SET', KEYS[1], form .. ARGV[1] .. ' ' .. token .. ' ' .. ARGV[3] .. ' 0 ' .. ARGV[2] .. ' ' .. rest, 'PX', ARGV[6], 'NX') then
      return token
    end
  end
end
