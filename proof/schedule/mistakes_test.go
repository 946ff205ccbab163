package schedule_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/schedule"
)

// mistakes replace a text of one script. alone is the invariant that finds the mistake without the
// rules, if one does.
var mistakes = []struct {
	name, script, old, new string
	alone                  string
}{
	{"a held key is granted", "acquire", "if live and not (state == reserved", "if live and state ~= held and not (state == reserved", "holder"},
	{"a reserved key is granted", "acquire", "if live and not (state == reserved and owner == request)", "if live and state ~= reserved", ""},
	{"a cooling key is granted", "acquire", "if live and not (state == reserved", "if live and state ~= cooling and not (state == reserved", ""},
	{"a repeat finds itself busy", "acquire", "if state == held and owner == request then", "if false then", ""},
	{"an expired lease is granted again", "acquire", "if not live or call('HGET'", "if call('HGET'", ""},
	{"a late duplicate is granted", "acquire", "if ended and string.find(ended, request, 1, true) then return {5} end", "", "ended"},
	{"a takeover is not noted", "acquire", "if not abandoned then call('HSET', hash, 'a', '1') end", "", ""},
	{"at most once takes over", "acquire", "if (abandoned or died) and mode == 'most' then", "if false then", ""},
	{"a refusal does not renew the mark", "acquire", "redis.pcall('PEXPIRE', hash, retention_ms)", "", ""},
	{"a token is the time", "acquire", "math.max(greatest + 1, now)", "now", "token"},
	{"a token is the last one and 1", "acquire", "math.max(greatest + 1, now)", "greatest + 1", "token"},
	{"a grant has no TTL", "acquire", "call('PEXPIRE', hash, retention_ms)\n  return", "return", "holder"},
	{"a plain grant has no TTL", "acquire", "rest, 'PX', retention_ms, 'NX'", "rest, 'NX'", ""},
	{"a plain grant replaces what is there", "acquire", "rest, 'PX', retention_ms, 'NX'", "rest, 'PX', retention_ms", "ended"},
	{"a plain release frees another's hold", "release", "string.sub(stored, 1, 28) == 'h' .. grant_id .. ' ' then", "string.sub(stored, 1, 1) == 'h' then", ""},
	{"a plain release of a once key frees another's hold", "release", "local first = string.sub(stored, 1, 28) == 'o' .. grant_id .. ' ' and", "local first =", ""},
	{"a plain release of a once key forgets its run", "release", "'t', first, 'n', 1) --", "'t', first) --", ""},
	{"a plain completion ends another's hold", "complete", "if own ~= 'o' .. id then return 0 end", "", ""},
	{"a repeated plain completion is refused", "complete", "if own == 'd' .. id then return 1 end", "", ""},
	{"a plain record has no TTL", "complete", "record, 'PX', keep_ms)", "record)", "record"},
	{"an unfolded record is a free key", "acquire", "s = 'd', e = by,", "e = by,", "record"},
	{"an unfolded hold of a once key forgets its run", "acquire", "p.n, p.g, p.m = '1',", "p.n, p.g, p.m = nil,", ""},
	{"a renewed hold of a once key is exclusive", "renew", "if p.n then form, holder = 'o', #fingerprint .. ' ' .. fingerprint .. holder end", "", ""},
	{"a group releases another's hold", "grant_many", "string.sub(value, 1, 28) == 'h' .. grant .. ' '", "string.sub(value, 1, 1) == 'h'", ""},
	{"a group acquires a held key", "grant_many", "terms, 'PX', retention_ms, 'NX'", "terms, 'PX', retention_ms", "holder"},
	{"a hold of a group has no TTL", "grant_many", "terms, 'PX', retention_ms, 'NX'", "terms, 'NX'", ""},
	{"a group does not report that a key is held", "grant_many", "if not set or set.err then", "if false then", "holder"},
	{"a group does not report that a hold is not its own", "grant_many", "if value ~= 1 then", "if false then", ""},
	{"a clean release frees the next holder's tokens", "release", "if now > tonumber(token) and now > (tonumber(first) or math.huge) and (not pause or pause_of(hash, pause, now) == 0) then", "if true then", "token"},
	{"a clean release forgets ended ids", "release", "repeated ~= '1' and not ended and", "", ""},
	{"a clean release forgets the queue", "release", "and call('ZCARD', queue) == 0 then -- planted:parked-remembered", "then", ""},
	{"an unfolded hold has no TTL", "acquire", "if left >= 0 then redis.call('PEXPIRE', key, left + 1) end", "", "record"},
	{"an unfolded hold forgets its renewals", "acquire", "x = ends > 0 and ends or token + length", "x = token + length", ""},
	{"an expired plain hold is renewed", "renew", "if ends <= now then return 0 end", "", ""},
	{"a queue has no TTL", "acquire", "call('PEXPIRE', queue, queue_ms)", "", ""},
	{"the queue is served from its end", "acquire", "'NX', now, member", "'NX', -now, member", ""},
	{"a record is run again", "acquire", "if state == 'd' then -- a replay", "if false then -- a replay", "record"},
	{"an expired lease is renewed", "renew", " or ends <= now then return 0 end", " then return 0 end", ""},
	{"another's lease is renewed", "renew", "or owner ~= grant_id or", "or", ""},
	{"a revoked lease is renewed", "renew", "if revoked == '1' then return 2 end", "", ""},
	{"a release frees another's hold", "release", "if state ~= held or owner ~= grant_id then", "if state ~= held then", "holder"},
	{"a release does not remember", "release", "if repeated == '1' then remember(hash, ended or '', grant_id) elseif", "if", "ended"},
	{"a stale release does not remember", "release", "if repeated == '1' then remember(hash, ended or '', grant_id) end", "", ""},
	{"a release forgets the last token", "release", "if token ~= first then call('HSET', hash, 'f', token) end\nif", "if", "token"},
	{"a release notifies no waiter", "release", "local next_request = reserve(hash, queue, reservation, peers)", "local next_request", ""},
	{"an abandoned hold is released", "release", "call('HSET', hash, 'a', '1')", "", ""},
	{"a dead waiter counts as notified", "release", "> 0 or not peers.counts_all", ">= 0", ""},
	{"the queue outlives the hash", "release", "outlive(hash, math.ceil(reservation / 1000) + minute_ms) -- planted", "-- planted", ""},
	{"the queue outlives the hash of a cleared key", "clear", "outlive(hash, math.ceil(math.max(reservation, k.paused - k.now) / 1000) + minute_ms) -- as in reserve", "", ""},
	{
		"an ended id is remembered for as long as the hash lives", "leave", "outlive(hash, minute_ms) -- planted:remembered-for-a-minute",
		"if call('PTTL', hash) < 0 then call('PEXPIRE', hash, minute_ms) end", "",
	},
	{"a withdrawal does not remember", "leave", "if ours or not k.bad then remember(hash, k.ended, request) end", "", "ended"},
	{"a withdrawal keeps the turn", "leave", "free(hash, queue, reservation, peers) -- planted", "call('HDEL', hash, 's', 'h', 'o', 'x', 'd', 'v') -- planted", ""},
	{"a withdrawal stays in the queue", "leave", "call('ZREM', queue, locker .. request) == 1", "0 == 1", ""},
	{"a withdrawal ends that the key is abandoned", "leave", "if k.state == held then -- the run did not begin\n", "if k.state == held then call('HDEL', hash, 'a')\n", ""},
	{"a withdrawn grant counts as a run", "leave", "if k.attempts > 0 then call('HSET', hash, 'n', k.attempts - 1) end", "", ""},
	{"a rotation passes the waiters by", "rotate", "if other then", "if false then", ""},
	{"a rotation ends another's hold", "rotate", "if k.state ~= held or k.owner ~= grant_id then\n  -- A repeat", "if k.state ~= held then\n  -- A repeat", ""},
	{"a completion ends another's hold", "complete", "if k.state ~= held or k.owner ~= grant_id then -- planted", "if k.state ~= held then -- planted", ""},
	{"a completion replaces a record", "complete", "if k.state ~= held or k.owner ~= grant_id then -- planted", "if k.state ~= done and (k.state ~= held or k.owner ~= grant_id) then -- planted", ""},
	{"a completion notifies no waiter", "complete", "call('PUBLISH', channels .. locker, 'w' .. request)", "", ""},
	{"a record ends with the memory of ids", "leave", "if v[1] == done and not v[2] then", "if false then", "record"},
	{"a revocation marks nothing", "revoke", "call('HSET', hash, 'v', before > 0 and '2' or '1')", "", ""},
	{"a late revocation meets the next hold", "revoke", "if before == 0 and (is_held or seen == 0) then remember(hash, k.ended, id) end", "", ""},
	{"a clear frees a held key", "clear", "if k.state == held and k.live or k.weights_held > 0 then return 0 end", "", "holder"},
	{"a release deletes a key with parked entries", "release", "and not parking_locker and", "and", ""},
	{"a release soon forgets parked entries", "release", "if parking_locker then outlive(hash, parked_ttl) end", "", ""},
	{"a release to a waiter reports parked entries", "release", "parking_locker and not next_request and", "parking_locker and", ""},
	{"a parked entry loses its place", "park", "call('ZREM', woken, entry) -- planted:parked-in-its-place", "call('ZADD', parked, now, entry)", ""},
	{"an entry that is parked again is woken", "park", "call('ZREM', woken, entry) -- planted:parked-in-its-place", "", ""},
	{"parked entries have no TTL", "park", "if call('PTTL', parked) < tonumber(keep_ms) then call('PEXPIRE', parked, keep_ms) end", "", "left"},
	{"parked entries end early", "park", "if call('PTTL', parked) < tonumber(keep_ms) then", "if true then", ""},
	{"a late waker removes an entry that is parked again", "unpark", "if since and (marked == 0 or ours) then", "if since then", ""},
	{"woken entries do not count", "unpark", "if begins(entry) then found = found + 1 end", "", ""},
	{"woken entries have no TTL", "unpark", "if #reply > 5 then call('PEXPIRE', woken, marks_ttl) end", "", ""},
	{"a key without entries says that it has some", "unpark", "redis.pcall('HDEL', hash, 'p')", "", ""},
	{"a share is granted beside an exclusive hold", "acquire_share", "elseif k.live and (k.state ~= shared or k.revoked) then", "elseif k.live and (k.state == reserved or k.revoked) then", "holder"},
	{"an exclusive hold is granted beside shares", "acquire", "if live and not (state == reserved", "if live and state ~= shared and not (state == reserved", "holder"},
	{"a share is granted without room", "acquire_share", "busy = busy or (not own and k.weights + weight > limit)", "", "limit"},
	{"a waiter is granted a share without room", "release_share", "if limit and k.weights + weight <= limit then", "if limit then", ""},
	{"a share overtakes the queue", "acquire_share", "busy = not own and call('ZCARD', queue) > 0", "", ""},
	{"a repeat of a share counts twice", "acquire_share", "if call('ZADD', key.shares, 'GT', ends, text) == 1 then k.weights, k.weights_held = k.weights + weight, k.weights_held + weight end", "call('ZADD', key.shares, 'GT', ends, text) k.weights, k.weights_held = k.weights + weight, k.weights_held + weight", ""},
	{"a late duplicate is granted a share", "acquire_share", "if string.find(k.ended, id, 1, true) then return {5} end", "", ""},
	{"a request for a share does not remember", "release_share", "if ours or not k.bad then remember(hash, k.ended, id) end", "", ""},
	{"the token of a phase is the time", "acquire_share", "k.token = math.max(k.greatest + 1, k.now)", "k.token = k.now", "token"},
	{"a phase keeps the token before it", "acquire_share", "k.token = math.max(k.greatest + 1, k.now)", "k.token = math.max(k.greatest, k.now)", "token"},
	{"a share of a reserved key is granted", "acquire_share", "elseif k.live and (k.state ~= shared or k.revoked) then", "elseif k.live and (k.state == held or k.state == cooling or k.revoked) then", ""},
	{"a share of revoked ones is granted", "acquire_share", "elseif k.live and (k.state ~= shared or k.revoked) then", "elseif k.live and k.state ~= shared then", ""},
	{"the first share brings none with it", "acquire_share", "serve(key, k, '', reservation, peers) -- planted:share-brings-others", "", ""},
	{"the end of a share serves no waiter", "release_share", "served = serve(key, k, '', reservation, peers) -- planted:share-served", "", ""},
	{"a writer that gives up serves no waiter", "leave", "local served = serve(key, k, '', reservation, peers) -- planted", "local served = 0 -- planted", ""},
	{"a phase that expired is reserved for no waiter", "acquire_share", "k.closed and reserve_for_next(key, k, reservation, peers)", "false", ""},
	{"the first waiter is dropped at once", "acquire_share", "if k.now - tonumber(seen) <= head_silent then", "if false then", ""},
	{"the weights of expired shares count", "acquire_share", "k.weights - gone, k.weights_held - gone_held, true", "k.weights, k.weights_held, true", ""},
	{"a share that was released counts", "release_share", "  else\n    k.weights = k.weights - weight\n", "  else\n", ""},
	{"a share that cools leaves its place", "release_share", "if call('ZADD', shares, 'GT', now + cooldown, 'c' .. text) == 0 then k.weights = k.weights - weight end", "k.weights = k.weights - weight", ""},
	{"the end of a phase is that of its last grant", "acquire_share", "k.ends, k.length = math.max(k.ends, ends), math.max(k.length, length)", "k.ends, k.length = ends, math.max(k.length, length)", "holder"},
	{"the end of a phase is not that of the last share", "release_share", "call('HSET', hash, 'c', k.weights, 'u', k.weights_held, 'x', k.ends)", "call('HSET', hash, 'c', k.weights, 'u', k.weights_held)", ""},
	{"an expired share is renewed", "renew_share", "if not ends or tonumber(ends) <= now then return {0} end", "if not ends then return {0} end", ""},
	{"a revoked share is renewed", "renew_share", "if k.revoked then return {2} end\nlocal length", "local length", ""},
	{"a released share is renewed", "renew_share", "if not ends or tonumber(ends) <= now then return {0} end", "if k.state ~= shared then return {0} end", ""},
	{"the renewal of a share leaves the end of its phase", "renew_share", "if now + lease > k.ends then", "if false then", "holder"},
	{"shares have no TTL", "acquire_share", "call('PEXPIRE', key.shares, keep)", "", ""},
	{"a clear ends shares", "clear", "k.live or k.weights_held > 0 then", "k.live then", ""},
	{"a phase forgets that a hold was abandoned", "acquire_share", "call('HSET', key.hash, 'a', '1') -- first, because maxmemory", "-- because maxmemory", ""},
	{"any process adopts a hold", "adopt", "k.owner ~= from and not mine", "false", "holder"},
	{"an expired hold is adopted", "adopt", "or not k.live or k.owner ~= from", "or k.owner ~= from", ""},
	{"a revoked hold is adopted", "adopt", "if k.revoked then return {2} end\nlocal reply", "local reply", ""},
	{"a repeated adoption is refused", "adopt", "k.owner ~= from and not mine", "k.owner ~= from", ""},
	{"a late adoption is not refused", "adopt", "if string.find(k.ended, request, 1, true) then return {0} end", "", ""},
	{"an adoption keeps the token", "adopt", "grant(hash, k.greatest, nil", "grant(hash, k.token, nil", ""},
	{"an adopted id is forgotten", "adopt", "remember(hash, k.ended, from)", "", ""},
	{"an adoption is another run", "adopt", "grant(hash, k.greatest, nil", "grant(hash, k.greatest, k.attempts + 1", ""},
	{"an interim answer of any run", "interim", "if k.owner ~= grant_id and not string.find(k.ended, grant_id, 1, true) then return 0 end", "", ""},
	{"an interim answer of an earlier run", "interim", "or k.attempts ~= tonumber(attempt)", "", ""},
	{"an interim answer outlives its run", "release", "'s', 'h', 'o', 'x', 'd', 'v', 'r', 'a', 'm', 'g')", "'s', 'h', 'o', 'x', 'd', 'v', 'a', 'm', 'g')", ""},
	{"a rate is rounded down", "throttle", "return math.ceil(cost * interval) end", "return math.floor(cost * interval) end", "rate"},
	{"a call takes nothing from the rate", "throttle", "math.max(b.full, k.now) + refill(r.cost * calls, r.interval)", "math.max(b.full, k.now)", "rate"},
	{"a batch takes the cost of one call", "throttle", "refill(r.cost * calls, r.interval)", "refill(r.cost, r.interval)", "rate"},
	{"a batch admits more than fit", "throttle", "math.floor(room / (r.cost * r.interval)) + 1", "math.floor(room / (r.cost * r.interval)) + 2", "rate"},
	{"a batch is admitted although other processes wait", "throttle", "if call('ZCARD', queue) > 0 then calls = 1 end", "", "order"},
	{"a bucket fills beyond its size", "throttle", "b.full = math.min(math.max(b.full, k.now) +", "b.full = math.min(math.max(b.full, k.now - 60000000) +", ""},
	{"serve takes the cost of the request that it tells", "throttle", "local at = due(rates_of(text, k)) -- planted:rate-told\n", "local at = due(rates_of(text, k))\n  if at <= k.now then spend(flow, k, rates_of(text, k), 1) end\n", ""},
	{"a time after the clock was set back is not written", "throttle", "        correct(flow, field, text_of(bucket)) -- planted:rate-clock-written\n", "", "idle"},
	{"a time after the clock was set back stays", "throttle", "if bucket.full - k.now > bucket.ahead then -- planted:rate-clock", "if false then", "idle"},
	{"the rate of a key has no TTL", "throttle", "keep_flow(flow, math.ceil(b.ahead / 1000) + 1)", "", "left"},
	{"a rate is forgotten early", "throttle", "keep_flow(flow, math.ceil(b.ahead / 1000) + 1)", "call('PEXPIRE', flow, math.ceil(b.ahead / 2000) + 1)", "rate"},
	{"a call overtakes the queue", "throttle", "first and first ~= member or due(rates", "due(rates", "order"},
	{"a permit with a rate overtakes the queue", "acquire_share", "busy = taken or first and first ~= member or full", "busy = taken or full", "order"},
	{"a permit ignores the rate", "acquire_share", "full or due(rates) > now", "full", "rate"},
	{"a permit with a rate is granted without room", "acquire_share", "local full = k.weights + weight > limit", "local full = false", "limit"},
	{"a repeat of a permit takes the cost again", "acquire_share", "if rates and not own then", "if rates then", ""},
	{"a silent process keeps its place before the rate", "throttle", "if k.now - k.rated_seen > head_silent then", "if false then", "waits"},
	{"a waiter is dropped while another call has the key", "throttle", "if k.rated_head == id then see_head(key.flow, k, id) end", "", "order"},
	{"an expired hold keeps dead processes in the queue", "throttle", "if k.state ~= '' and k.state ~= shared then -- planted:rate-behind-expired\n    local died", "if k.state ~= '' and k.state ~= shared then\n    do return end\n    local died", "idle"},
	{"an expired hold is forgotten", "throttle", "call('HSET', key.hash, 'a', '1', 'f', string.format('%.0f', k.greatest))", "", ""},
	{"a turn does not count the costs before it", "throttle", "for _, r in ipairs(before) do r.bucket.full = math.max(r.bucket.full, turn) + refill(r.cost, r.interval) end", "", ""},
	{"a late duplicate is admitted", "throttle", "if string.find(k.ended, id, 1, true) then return {5} end", "", ""},
	{"a call with a rate begins while the key is held", "throttle", "local taken = k.live and k.state ~= shared", "local taken = false", ""},
	{"a clear forgets its id", "clear", "remember(hash, '', id) -- otherwise", "-- otherwise", ""},
}

// TestTrace checks that the trace of a failure is short and that its last line is the failure.
func TestTrace(t *testing.T) {
	s := mistaken(t, "or owner ~= grant_id then", "then")
	for seed := range uint64(fullCount) {
		_, v := schedule.Run(s, seed)
		if v == nil {
			continue
		}
		lines := strings.Split(schedule.Trace(s, seed), "\n")
		if last := lines[len(lines)-1]; len(lines) > 15 || !strings.HasPrefix(last, "reply: release of R") {
			t.Errorf("the trace has %d lines and ends with %q", len(lines), last)
		}
		t.Logf("%v\n%s", v, strings.Join(lines, "\n"))
		return
	}
	t.Error("the mistake is not found")
}

// TestMistakesFit checks that the scripts contain the text that each mistake replaces.
func TestMistakesFit(t *testing.T) {
	texts := wire.Texts()
	for _, m := range mistakes {
		if !strings.Contains(texts[m.script], m.old) {
			t.Errorf("%s: %s does not contain %q", m.name, m.script, m.old)
		}
	}
}

// mistaken returns a server with scripts that have a mistake.
func mistaken(t *testing.T, old, new string) *schedule.Lua {
	t.Helper()
	texts := wire.Texts()
	for name, text := range texts { // a part of a script may also be in others
		texts[name] = strings.ReplaceAll(text, old, new)
	}
	s, err := schedule.NewLua(texts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFindsMistakes runs schedules against scripts that have a mistake. Each is found within the
// number of schedules of level campaign.
func TestFindsMistakes(t *testing.T) {
	testlevel.Campaign(t)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := mistaken(t, m.old, m.new)
			for seed := uint64(1); seed <= fullCount; seed++ {
				if _, v := schedule.Run(s, seed); v != nil {
					t.Logf("found after %d schedules: %v", seed, v)
					return
				}
			}
			t.Errorf("the mistake is not found by %d schedules", fullCount)
		})
	}
}

// TestInvariantsFindMistakes runs schedules that only the invariants judge. So each invariant finds
// a mistake that the rules might have too.
func TestInvariantsFindMistakes(t *testing.T) {
	testlevel.Full(t)
	for _, m := range mistakes {
		if m.alone == "" {
			continue
		}
		s := mistaken(t, m.old, m.new)
		seed, last := uint64(1), uint64(4000)
		for ; seed <= last; seed++ {
			if seed > 100 {
				seed += 4 // only schedules with rates
			}
			if v := schedule.RunAlone(s, seed); v != nil {
				if v.Check != m.alone {
					t.Errorf("%s: %v with seed %d, want invariant %s", m.name, v, seed, m.alone)
				}
				break
			}
		}
		if seed > last {
			t.Errorf("%s: no invariant finds it, want %s", m.name, m.alone)
		}
	}
}
