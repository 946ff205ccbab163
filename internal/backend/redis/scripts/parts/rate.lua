-- rate.lua: the rate of a key, see rules/rate.go. The text of a request with a rate has
-- n "/" period µs "/" burst "/" cost "/" after its weight. A request of Throttled has limit 0 and
-- weight 0: it gets no share. A hash of its own, flow, with its own TTL, has the fields
--   b "full ahead": the time at which the bucket of the key is full again, and how far ahead that was
--     when it was written, both in µs
--   y "full ahead": the same of the bucket of the restriction
--   w head: the first request of the queue, if it has a rate, and when it was last sent, or became
--     the first
--   z restriction "ends length limit n period burst reason", the times in µs: until its end, a request
--     gets the smaller of these and its own terms. A limit or n of 0 restricts nothing
local max_ahead = 172800000000 -- µs: how far ahead the bucket is full at most
local max_counted = 100 -- requests of the queue whose costs a busy reply counts

-- Returns the rates of a request, its own and that of a restriction, or nil without one: its bucket, µs
-- for a cost of 1, burst and cost.
local function rates_of(text, k)
  local n, per, burst, cost = string.match(text, '/%d+/%d+/(%d+)/(%d+)/(%d+)/(%d+)/$')
  local r, rates = k.restriction, {}
  if n then rates[1] = {bucket = k.buckets.b, interval = per / n, burst = tonumber(burst), cost = tonumber(cost)} end
  if r and r.interval and string.byte(text, -1) == 47 then -- '/': not a request for the key alone
    rates[#rates + 1] = {bucket = k.buckets.y, interval = r.interval, burst = r.burst, cost = tonumber(cost or 1)} -- planted:restricted-rate
  end
  return rates[1] and rates
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

local function text_of(bucket) return string.format('%.0f %.0f', bucket.full, bucket.ahead) end

-- Reads the flow into k.buckets, k.rated_head, k.rated_seen, and k.restriction if it has not ended.
-- Returns the name of a field that cannot be read. If a bucket is full later than it can be, or a
-- restriction ends later than it is long, the clock was set back. The time is then written anew:
-- otherwise it would move with the clock.
local function load_flow(flow, k)
  local v = call('HMGET', flow, 'b', 'y', 'w', 'z')
  local buckets = {}
  k.rated_head, k.rated_seen = '', 0
  for i, field in ipairs({'b', 'y'}) do
    local bucket = {field = field, full = 0, ahead = 0}
    if v[i] then
      local full, ahead = string.match(v[i], '^(%d+) (%d+)$')
      if not full or #full > 16 or #ahead > 16 then return field end
      bucket.full, bucket.ahead = tonumber(full), tonumber(ahead)
      if bucket.full - k.now > bucket.ahead then -- planted:rate-clock
        bucket.full = k.now + bucket.ahead
        correct(flow, field, text_of(bucket)) -- planted:rate-clock-written
      end
    end
    buckets[field] = bucket
  end
  if v[3] then
    local id, seen = string.match(v[3], '^(%w+) (%d+)$')
    if not id or #seen > 16 then return 'w' end
    k.rated_head, k.rated_seen = id, tonumber(seen)
  end
  if v[4] then
    local ends, length, limit, n, per, burst = string.match(v[4], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ')
    if not ends or #ends > 16 or #length > 16 or #limit > 16 or #n > 16 or #per > 16 or #burst > 16 then return 'z' end
    ends, length = tonumber(ends), tonumber(length)
    if ends - k.now > length then -- planted:restriction-clock
      ends = k.now + length
      correct(flow, 'z', string.format('%.0f', ends) .. string.match(v[4], ' .*$'))
    end
    if ends > k.now then -- planted:restriction-ends
      k.restriction = {
        left = ends - k.now, text = string.match(v[4], '^%d+ %d+ (.*)$'), limit = tonumber(limit), interval = tonumber(n) > 0 and per / n,
        burst = tonumber(burst),
      }
    end
  end
  k.buckets = buckets
end

-- Returns the time in which a cost returns to the bucket. It is rounded before it is added to a time,
-- because a time in µs has no place for a fraction.
local function refill(cost, interval) return math.ceil(cost * interval) end -- planted:rate-rounded

-- Returns the time from which on all rates of a request let it begin.
local function due(rates)
  local at = 0
  for _, r in ipairs(rates) do at = math.max(at, r.bucket.full - math.floor((r.burst - math.min(r.cost, r.burst)) * r.interval)) end
  return at
end

-- Takes the cost of a number of calls from the buckets of all rates. Returns the cost that calls may
-- have now, and µs until they may have 1 more.
local function spend(flow, k, rates, calls)
  local rest, reset = math.huge, 0
  for _, r in ipairs(rates) do
    local b = r.bucket
    b.full = math.min(math.max(b.full, k.now) + refill(r.cost * calls, r.interval), k.now + max_ahead) -- planted:rate-spent
    b.ahead = b.full - k.now
    call('HSET', flow, b.field, text_of(b))
    keep_flow(flow, math.ceil(b.ahead / 1000) + 1) -- planted:rate-ttl
    local left = math.max(math.floor(r.burst - b.ahead / r.interval), 0)
    local more = math.max(math.ceil(b.ahead - (r.burst - left - 1) * r.interval), 0)
    if left < rest or left == rest and more > reset then rest, reset = left, more end
  end
  return rest, reset
end

-- Notes that the first request of the queue, which has a rate, was sent or has become the first.
local function see_head(flow, k, id)
  k.rated_head, k.rated_seen = id, k.now
  call('HSET', flow, 'w', id .. ' ' .. string.format('%.0f', k.now))
  keep_flow(flow, minute_ms)
end

-- Notes that a request was sent that is the first of the queue of a rate, or was it until a restriction
-- ended. The rate does not decide its turn, so it may have to wait for long.
local function see_again(key, k, id)
  if k.rated_head == id then see_head(key.flow, k, id) end -- planted:rate-seen-again
end

-- Returns the busy reply to a request with a rate whose turn the rate decides. Its turn is after those
-- of the requests before it, which this counts one after the other.
local function busy_rated(key, k, id, member, rates)
  local waiting, first = call('ZCARD', key.queue), call('ZRANGE', key.queue, 0, max_counted - 1)
  local in_turn = first[1] == member
  if in_turn or k.rated_head == id then see_head(key.flow, k, id) end -- at the same µs a later request may come before it
  local turn = k.now
  for _, other in ipairs(first) do
    if other == member then break end
    local before = rates_of(other, k) or {}
    turn = math.max(turn, due(before))
    for _, r in ipairs(before) do r.bucket.full = math.max(r.bucket.full, turn) + refill(r.cost, r.interval) end -- planted:rate-costs-before
  end
  return {0, math.max(turn, due(rates)) - k.now, 0, '', waiting, '', '', '', 0, in_turn and 1 or 2, 1}
end
