-- trigger.lua: order the triggers of a key, see backend.TriggerRequest.
-- op: read, note, done, drop · entry of the task, or '' · own: number of the trigger, of done and
--   drop · flag: 1: of note, the task was never retried; of done and drop, the trigger ends · keep_ms:
--   TTL while a trigger has not ended · most: members of the set
-- Returns {0, number} old · {0} old, and it has ended · {1, number, first uncovered number, now, older triggers} newest · {2, µs} ask
-- again then; of read {3, number of the newest success, now}; of done and drop {1}
-- or the error BADFIELD.
--
-- The members of the set are entries. The score of a trigger is its number, and when it has ended the
-- negative time of its end. Two members are no entries: '=' has the number of the newest success, and
-- '<' that of the first trigger that no success covers. A late duplicate of note gives no number to
-- a trigger that ended less than a minute ago. One of done or drop compares the number.
-- include parts/key.lua
local triggers = unpack(KEYS)
local op, entry, own, flag, keep_ms, most = unpack(ARGV)
local now, minute, hour = clock(), minute_ms * 1000, 3600000000
local function text(n) return string.format('%.0f', n) end
local function score(member) return tonumber(call('ZSCORE', triggers, member)) end
local newest = tonumber(call('ZRANGE', triggers, -1, -1, 'WITHSCORES')[2]) or 0
local succeeded, first = score('=') or 0, score('<')
if not (newest <= 9e15) then return {err = 'BADFIELD :t'} end -- also nan
newest = math.max(newest, 0)

-- Returns up to limit triggers that have not ended, with numbers from least on and below bound.
local function open(least, bound, limit)
  local found = {}
  for _, member in ipairs(call('ZRANGE', triggers, least, bound, 'BYSCORE', 'LIMIT', 0, limit + 2)) do
    if member ~= '=' and member ~= '<' and #found < limit then found[#found + 1] = member end
  end
  return found
end

if op == 'read' then return {3, succeeded, now} end
if op == 'note' then
  local number = score(entry)
  if number and number < -now then -- the clock was set back
    number = -now
    call('ZADD', triggers, text(number), entry)
  end
  if number and number < 0 then
    if flag == '0' then return {0} end -- planted:ended-stays-ended
    if now + number < minute then return {2, minute - now - number} end -- a late duplicate, or another task with this ID
    number = nil
  end
  local older = {}
  if not number then
    local gone = call('ZRANGE', triggers, -1, text(hour - now), 'BYSCORE', 'REV', 'LIMIT', 0, 100)
    if #gone == 0 and call('ZCARD', triggers) >= tonumber(most) then
      gone = call('ZRANGE', triggers, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1)
      if #gone == 0 then gone = open(1, '+inf', 1) end
    end
    for _, member in ipairs(gone) do call('ZREM', triggers, member) end
    number = math.max(now, newest + 1) -- planted:triggers-in-order
    newest = number
    call('ZADD', triggers, text(number), entry)
    older = open(1, '(' .. text(number), 64)
  end
  call('PEXPIRE', triggers, keep_ms)
  if newest > number or succeeded >= number then return {0, number} end -- planted:newest-of-all
  if not first then
    first = number
    call('ZADD', triggers, text(first), '<')
  end
  return {1, number, first, now, #older}
end

if op == 'done' then
  call('ZADD', triggers, 'GT', own, '=') -- planted:success-is-remembered
  succeeded = math.max(succeeded, tonumber(own))
  if not first or first <= succeeded then
    local next = open('(' .. text(succeeded), '+inf', 1)[1]
    if next then call('ZADD', triggers, call('ZSCORE', triggers, next), '<') else call('ZREM', triggers, '<') end
  end
end
if flag == '1' and score(entry) == tonumber(own) then -- planted:trigger-of-this-task
  call('ZADD', triggers, text(-now), entry) -- planted:end-is-remembered
end
call('PEXPIRE', triggers, open(1, '+inf', 1)[1] and keep_ms or hour / 1000) -- planted:open-triggers-are-kept
return {1}
