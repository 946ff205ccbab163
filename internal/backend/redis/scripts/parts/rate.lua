-- rate.lua: the rate of a key, see rules/rate.go. The text of a request with a rate has
-- n "/" period µs "/" burst "/" cost "/" after its weight. A request of Throttled has limit 0 and
-- weight 0: it gets no share. A hash of its own, flow, with its own TTL, has the fields
--   b "full ahead": the time at which the bucket is full again, and how far ahead that was when it
--     was written, both in µs
--   w head: the first request of the queue, if it has a rate, and when it was last sent, or became
--     the first
--   z restriction "ends length limit n period burst reason", the times in µs: until its end, a request
--     gets the smaller of these and its own terms. A limit or n of 0 restricts nothing
local max_ahead = 172800000000 -- µs: how far ahead the bucket is full at most
local max_counted = 100 -- requests of the queue whose costs a busy reply counts

-- Returns µs for a cost of 1, burst and cost, or nil without a rate.
local function rate_of(text, k)
  local n, per, burst, cost = string.match(text, '/%d+/%d+/(%d+)/(%d+)/(%d+)/(%d+)/$')
  local r = k.restriction
  if not r or not r.interval then
    if n then return per / n, tonumber(burst), tonumber(cost) end
  elseif n then
    return math.max(per / n, r.interval), math.min(tonumber(burst), r.burst), tonumber(cost) -- planted:restricted-rate
  elseif string.byte(text, -1) == 47 then -- '/': not a request for the key alone
    return r.interval, r.burst, 1
  end
end

-- Returns the limit of a request for a share. One that is heavier than the restriction gets the key
-- when no other share is held or cools: otherwise it would wait until the restriction ends.
local function limit_of(k, limit, weight)
  local r = k.restriction
  return r and r.limit > 0 and math.min(limit, math.max(r.limit, weight)) or limit -- planted:restricted-limit
end

-- Extends the TTL of the flow to at least ms.
local function keep_flow(flow, ms)
  if call('PTTL', flow) < ms then call('PEXPIRE', flow, ms) end
end

-- Reads the flow into k.full, k.ahead, k.rated_head, k.rated_seen, and k.restriction if it has not
-- ended. Returns the name of a field that cannot be read. If the end of a restriction is further away
-- than it is long, the clock was set back, and the field is written anew.
local function load_flow(flow, k)
  local v = call('HMGET', flow, 'b', 'w', 'z')
  k.full, k.ahead, k.rated_head, k.rated_seen = 0, 0, '', 0
  if v[1] then
    local full, ahead = string.match(v[1], '^(%d+) (%d+)$')
    if not full or #full > 16 or #ahead > 16 then return 'b' end
    k.full, k.ahead = tonumber(full), tonumber(ahead)
  end
  if v[2] then
    local id, seen = string.match(v[2], '^(%w+) (%d+)$')
    if not id or #seen > 16 then return 'w' end
    k.rated_head, k.rated_seen = id, tonumber(seen)
  end
  if v[3] then
    local ends, length, limit, n, per, burst = string.match(v[3], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ')
    if not ends or #ends > 16 or #length > 16 or #limit > 16 or #n > 16 or #per > 16 or #burst > 16 then return 'z' end
    ends, length = tonumber(ends), tonumber(length)
    if ends - k.now > length then -- planted:restriction-clock
      ends = k.now + length
      call('HSET', flow, 'z', string.format('%.0f', ends) .. string.match(v[3], ' .*$'))
    end
    if ends > k.now then -- planted:restriction-ends
      k.restriction = {
        left = ends - k.now, text = string.match(v[3], '^%d+ %d+ (.*)$'), limit = tonumber(limit), interval = tonumber(n) > 0 and per / n,
        burst = tonumber(burst),
      }
    end
  end
end

-- Returns the time from which on a bucket that is full at the time full lets a request begin.
local function due_of(full, interval, burst, cost) return full - math.floor((burst - math.min(cost, burst)) * interval) end

-- Returns the time in which a cost returns to the bucket. It is rounded before it is added to a time,
-- because a time in µs has no place for a fraction.
local function refill(cost, interval) return math.ceil(cost * interval) end -- planted:rate-rounded

-- Returns the time from which on the rate lets a request begin. A bucket that is full later than it can be
-- means that the clock was set back. The time is then written anew: otherwise it would move with the
-- clock.
local function due(flow, k, interval, burst, cost)
  if k.full - k.now > k.ahead then -- planted:rate-clock
    k.full = k.now + k.ahead
    call('HSET', flow, 'b', string.format('%.0f %.0f', k.full, k.ahead)) -- planted:rate-clock-written
  end
  return due_of(k.full, interval, burst, cost)
end

-- Takes the cost of a number of calls. Returns the cost that calls may have now, and µs until they
-- may have 1 more.
local function spend(flow, k, calls, interval, burst, cost)
  if k.full - k.now > k.ahead then k.full = k.now + k.ahead end -- as in due
  k.full = math.min(math.max(k.full, k.now) + refill(cost * calls, interval), k.now + max_ahead) -- planted:rate-spent
  k.ahead = k.full - k.now
  call('HSET', flow, 'b', string.format('%.0f %.0f', k.full, k.ahead))
  keep_flow(flow, math.ceil(k.ahead / 1000) + 1) -- planted:rate-ttl
  local rest = math.max(math.floor(burst - k.ahead / interval), 0)
  return rest, math.max(math.ceil(k.ahead - (burst - rest - 1) * interval), 0)
end

-- Notes that the first request of the queue, which has a rate, was sent or has become the first.
local function see_head(flow, k, id)
  k.rated_head, k.rated_seen = id, k.now
  call('HSET', flow, 'w', id .. ' ' .. string.format('%.0f', k.now))
  keep_flow(flow, minute_ms)
end

-- Notes that a request with a rate was sent, if it is the first of the queue. The rate does not
-- decide its turn, so it may have to wait for long.
local function see_again(key, k, id)
  if k.rated_head == id then see_head(key.flow, k, id) end -- planted:rate-seen-again
end

-- Returns the busy reply to a request with a rate whose turn the rate decides.
local function busy_rated(key, k, id, member, interval, burst, cost)
  local waiting, first = call('ZCARD', key.queue), call('ZRANGE', key.queue, 0, max_counted - 1)
  local in_turn = first[1] == member
  if in_turn then see_head(key.flow, k, id) end
  due(key.flow, k, interval, burst, cost)
  local full = math.max(k.full, k.now)
  for _, other in ipairs(first) do
    if other == member then break end
    local other_interval, _, other_cost = rate_of(other, k)
    if other_interval then full = full + refill(other_cost, other_interval) end -- planted:rate-costs-before
  end
  local left = math.max(due_of(full, interval, burst, cost) - k.now, 0)
  return {0, left, 0, '', waiting, '', '', '', 0, in_turn and 1 or 2, 1}
end
