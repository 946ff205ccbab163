-- acquire.lua: acquire a key for a request, or return why it does not get it.
-- request, locker: ids · lease µs · enqueue the request if the key is busy (1|0) · holder: its text
--   · retention_ms of an abandoned hold · fingerprint · mode: exclusive | least | most · queue_ms:
--   retention of the queue · plain: the grant may be a plain hold (1|0): no duplicate of this
--   command may exist · floor: the least token of the grant, or 0 · waits: see enter_queue, or missing
-- Returns the token of a plain hold, as text, or a plain record as it is stored, or one of
--   {0, remaining µs, held for µs, holder text, queue length, fingerprint} busy. If the key is held
--     or shared, the locker id of the holder follows. If there is an interim answer, it follows. If
--     the key is shared, '' and the sum of the weights follow. If the key or a share cools, its
--     place in the queue follows: 1 for the first, 2 for any other. If the key is paused, 0 and the
--     reason follow
--   {1, token, attempt, abandoned (1|0)} granted. If the key may have parked entries, a 1 follows
--   {2, record, attempt, fingerprint} done. If the key may have parked entries, a 1 follows
--   {3, done (1|0)} another fingerprint
--   {4, holder text, held for µs, attempt} abandoned, refused
--   {5} the request has ended
--   more, see share_member.lua
-- or the error BADFIELD and the name of a field that cannot be read; then nothing was written.
local hash, queue = unpack(KEYS)
local request, locker, lease, enqueue, holder, retention_ms, fingerprint, mode, queue_ms, plain, floor, waits = unpack(ARGV)
-- include parts/acquire_plain.lua
local stored -- the reply to GET for a once key
if plain == '1' then -- first, because most requests need no more
  local reply
  reply, stored = acquire_plain(hash, request, locker, lease, holder, retention_ms, fingerprint, mode)
  if reply then return reply end
end
-- include parts/plain.lua
-- include parts/number.lua
local plain_data = type(stored) == 'string' and parse(stored)
if plain_data then unfold(hash, plain_data) end
local v = fields(hash, 's', 'h', 'x', 'd', 't', 'f', 'a', 'g', 'l', 'n', 'r', 'p', 'y')
local state, owner, ends, length, token, used, abandoned, stored_fingerprint, ended, attempts, record, parking_locker, pause = unpack(v, 1, 13)
local counted = attempts -- as it is stored
attempts = mode ~= 'exclusive' and number(attempts, exact) -- nil: unreadable
stored_fingerprint = stored_fingerprint or ''
local differs = fingerprint ~= '' and stored_fingerprint ~= '' and fingerprint ~= stored_fingerprint
parking_locker = parking_locker and 1 or nil

local record_ended = false
if state == 'd' and ends then -- complete.lua set an end of the record
  local time = redis.call('TIME')
  record_ended = (tonumber(ends) or 0) <= time[1] * 1000000 + time[2]
  if record_ended then state, attempts = false, attempts and 0 end
end
if state == 'd' then -- a replay needs no more functions
  if attempts == nil then return {err = 'BADFIELD n'} end
  if enqueue == '1' then redis.call('ZREM', queue, locker .. request) end -- otherwise the request never entered the queue
  if differs then return {3, 1} end -- planted:other-payload
  return {2, record or '', counted and attempts or 1, stored_fingerprint, parking_locker}
end
-- include parts/key.lua
-- include parts/grant.lua
-- include parts/share_member.lua
token, used = number(token, exact), number(used, exact)
if state then ends, length = number(ends, math.huge), number(length, math.huge) end
local bad = not token and 't' or not used and 'f' or attempts == nil and 'n' or state and (not ends and 'x' or not length and 'd')
if bad then return {err = 'BADFIELD ' .. bad} end

local now = clock()
if state then ends = clamp(hash, ends, length, now) end
local live = state and ends > now
local paused, pause_reason = 0, nil
if pause then paused, pause_reason = pause_of(hash, pause, now) end
abandoned = abandoned == '1'
if state == held and owner == request then -- planted:same-request
  if not live or call('HGET', hash, 'v') then return {5} end -- an expired or revoked grant is never revived
  -- The reply was lost, or this command is a late duplicate. Return the same grant again, and never
  -- shorten it.
  if now + lease > ends then call('HSET', hash, 'x', now + lease, 'd', lease) end
  return {1, token, attempts or 1, abandoned and 1 or 0, parking_locker}
end
-- planted:late-duplicate
if ended and string.find(ended, request, 1, true) then return {5} end -- a late duplicate of a request that has ended

if live and not (state == reserved and owner == request) or paused > 0 then -- planted:key-is-taken
  if live and state == held and differs then return {3, 0} end
  if enqueue == '1' then enter_queue(queue, locker .. request, now, queue_ms, locker, waits) end
  local waiting = call('ZCARD', queue)
  if not live or state == cooling then
    local left = math.max(paused, live and ends or 0) - now
    return {0, left, 0, '', waiting, '', '', '', 0, place(queue, locker .. request), 0, pause_reason}
  end
  if state == reserved then return {0, ends - now, 0, '', waiting, ''} end
  if state == held then
    local by = call('HMGET', hash, 'm', 'o', 'r')
    return {0, ends - now, math.max(now - token, 0), by[1] or '', waiting, stored_fingerprint, by[2] or '', by[3] or nil}
  end
  local by = call('HMGET', hash, 'm', 'o', 'c', 'w', 'u')
  if by[4] and string.sub(by[4], 1, 26) == request then -- see serve in shares.lua
    call('HSET', hash, 'w', request .. ' ' .. string.format('%.0f', now))
  end
  local weights, weights_held = number(by[3], exact) or 0, number(by[5], exact) or 0
  return {0, ends - now, math.max(now - token, 0), by[1] or '', waiting, '', by[2] or '', '', weights,
    weights > weights_held and place(queue, locker .. request) or nil}
end

local died = state == held -- the lease expired without a release
local greatest = math.max(used, token, floor - 1)
if died then greatest = math.max(greatest, token + block - 1) end -- planted:tokens-of-dead-holder
if (abandoned or died) and mode == 'most' then -- planted:abandoned-refused
  -- Each refusal renews the mark. If the server refuses the write, the key is refused nevertheless.
  if call('PTTL', hash) < tonumber(retention_ms) then redis.pcall('PEXPIRE', hash, retention_ms) end -- planted:refusal-renews
  if died then redis.pcall('HDEL', hash, 'r') end -- an interim answer may be large
  if not differs then return {4, call('HGET', hash, 'm') or '', math.max(now - token, 0), attempts} end -- after a clear the refused payload may run
end
if (abandoned or died) and differs then return {3, 0} end
local shares, expired = hash .. ':s', {} -- in the slot of the key; see shares.lua
if state == shared then -- all shares have expired
  expired = call('ZRANGE', shares, 0, share_step - 1)
  if expired[share_step] then
    remove_shares(hash, shares, expired)
    return more
  end
end
if attempts then attempts = attempts + 1 end
token = grant(hash, greatest, attempts or nil, now, request, locker, lease, holder, retention_ms) -- first, because maxmemory may refuse it
local reply = {1, token, attempts or 1, (abandoned or died) and 1 or 0, parking_locker} -- planted:grant-reply
if died then
  if not abandoned then call('HSET', hash, 'a', '1') end -- planted:abandoned-noted
  call('HDEL', hash, 'v', 'r')
end
if state == shared then
  remove_shares(hash, shares, expired)
  call('HDEL', hash, 'v', 'c', 'u', 'w')
end
if record_ended then call('HDEL', hash, 'r', 'e') end
if fingerprint ~= '' then
  call('HSET', hash, 'g', fingerprint)
elseif stored_fingerprint ~= '' then
  call('HDEL', hash, 'g')
end
if enqueue == '1' then call('ZREM', queue, locker .. request) end -- otherwise the request never entered the queue
return reply
