-- plain_release.lua is the first part of release.lua. It deletes a plain hold of an exclusive key.
-- See plain.lua.
local stored -- the reply to GET: false, a string, or an error if the key is a hash
if ARGV[10] == '1' then
  stored = redis.pcall('GET', KEYS[1])
  if type(stored) == 'string' and string.sub(stored, 1, 28) == 'h' .. ARGV[1] .. ' ' then
    redis.call('DEL', KEYS[1])
    return 1
  end
end
