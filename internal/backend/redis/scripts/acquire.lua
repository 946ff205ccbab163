-- acquire.lua: acquire a key for a request, or return why it does not get it.
-- KEYS[1]=hash KEYS[2]=queue
-- ARGV: 1 request id, 2 locker id, 3 lease µs, 4 enter the queue (1|0), 5 holder text,
--       6 retention ms of an abandoned hold, 7 fingerprint, 8 mode: exclusive | least | most,
--       9 retention ms of the queue,
--       10 the grant may be a plain hold (1|0): no duplicate of this command may exist
-- Returns the token of a plain hold, as text, or a plain record as it is stored, or one of
--   {0, remaining µs, held for µs, holder text, queue length, fingerprint} busy. If the key is held
--     or shared, the locker id of the holder follows. If there is an interim answer, it follows. If
--     the key is shared, '' and the sum of the weights follow. If the key or a share cools, its
--     place in the queue follows: 1 for the first, 2 for any other
--   {1, token, attempt, abandoned (1|0)} granted. If the key may have parked entries, a 1 follows
--   {2, record, attempt, fingerprint} done. If the key may have parked entries, a 1 follows
--   {3, done (1|0)} another fingerprint
--   {4, holder text, held for µs, attempt} abandoned, refused
--   {5} the request has ended
--   more, see sweep.lua
-- or the error BADFIELD and the name of a field that cannot be read; then nothing was written.
-- include parts/plain_acquire.lua
-- include parts/plain.lua
-- include parts/number.lua
-- include parts/done.lua
-- include parts/lease.lua
-- include parts/grant.lua
-- include parts/sweep.lua
local request, locker, lease, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[8]
-- One-letter names are the fields that lease.lua lists. v contains their values.
local s, h, t, f, a = v[1], v[2], 0, 0, v[7] == '1'
local x, d
if v[5] then t = number(v[5], exact) end -- skips the function if the field is missing, as for a free key
if v[6] then f = number(v[6], exact) end
if s then x, d = number(v[3], math.huge), number(v[4], math.huge) end
local bad = not t and 't' or not f and 'f' or n == nil and 'n' or s and (not x and 'x' or not d and 'd')
if bad then return {err = 'BADFIELD ' .. bad} end

clock()
if s then x = clamp(KEYS[1], x, d) end
local live = s and x > now
if s == 'h' and h == request then -- planted:same-request
  if not live or call('HGET', KEYS[1], 'v') == '1' then return {5} end -- an expired or revoked grant is never revived
  -- The reply was lost, or this command is a late duplicate. Return the same grant again, and never
  -- shorten it.
  if now + tonumber(lease) > x then call('HSET', KEYS[1], 'x', now + tonumber(lease), 'd', lease) end
  return {1, t, n or 1, a and 1 or 0, v[12] and 1 or nil}
end
-- planted:late-duplicate
if v[9] and string.find(v[9], request, 1, true) then return {5} end -- a late duplicate of a request that has ended

if live and not (s == 'r' and h == request) then -- planted:key-is-taken
  if s == 'h' and differs then return {3, 0} end
  if ARGV[4] == '1' then enqueue(locker .. request, ARGV[9]) end
  local queue = call('ZCARD', KEYS[2])
  if s == 'c' then return {0, x - now, 0, '', queue, '', '', '', 0, place(locker .. request)} end
  if s == 'r' then return {0, x - now, 0, '', queue, ''} end
  if s == 'h' then
    local holder = call('HMGET', KEYS[1], 'm', 'o', 'r')
    return {0, x - now, math.max(now - t, 0), holder[1] or '', queue, g, holder[2] or '', holder[3] or nil}
  end
  local holder = call('HMGET', KEYS[1], 'm', 'o', 'c', 'w', 'u')
  if holder[4] and string.sub(holder[4], 1, 26) == request then -- see serve in shares.lua
    call('HSET', KEYS[1], 'w', request .. ' ' .. string.format('%.0f', now))
  end
  local c, u = number(holder[3], exact) or 0, number(holder[5], exact) or 0
  return {0, x - now, math.max(now - t, 0), holder[1] or '', queue, '', holder[2] or '', '', c, c > u and place(locker .. request) or nil}
end

f = math.max(f, t)
if s == 'h' then f = math.max(f, t + block - 1) end -- planted:tokens-of-dead-holder
if (a or s == 'h') and mode == 'most' then -- planted:abandoned-refused
  -- Each refusal renews the mark. If the server refuses the write, the key is refused nevertheless.
  if call('PTTL', KEYS[1]) < tonumber(ARGV[6]) then redis.pcall('PEXPIRE', KEYS[1], ARGV[6]) end -- planted:refusal-renews
  if s == 'h' then redis.pcall('HDEL', KEYS[1], 'r') end -- an interim answer may be large
  if not differs then return {4, call('HGET', KEYS[1], 'm') or '', math.max(now - t, 0), n} end -- after a clear the refused payload may run
end
if (a or s == 'h') and differs then return {3, 0} end
local shares, ended = KEYS[1] .. ':s', {} -- in the slot of the key; see shares.lua
if s == 's' then -- all shares have expired
  ended = call('ZRANGE', shares, 0, share_step - 1)
  if ended[share_step] then
    remove_shares(shares, ended)
    return more
  end
end
-- planted:grant-reply
local reply = grant(f, n and n + 1, a or s == 'h', request, locker, lease, ARGV[5], ARGV[6], v[12]) -- first, because maxmemory may refuse it
if s == 'h' then
  if not a then call('HSET', KEYS[1], 'a', '1') end -- planted:abandoned-noted
  call('HDEL', KEYS[1], 'v', 'r')
end
if s == 's' then
  remove_shares(shares, ended)
  call('HDEL', KEYS[1], 'v', 'c', 'u', 'w')
end
if record_ended then call('HDEL', KEYS[1], 'r', 'e') end
if fingerprint ~= '' then
  call('HSET', KEYS[1], 'g', fingerprint)
elseif g ~= '' then
  call('HDEL', KEYS[1], 'g')
end
if ARGV[4] == '1' then call('ZREM', KEYS[2], locker .. request) end -- otherwise the request never entered the queue
return reply
