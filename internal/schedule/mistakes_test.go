package schedule_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/schedule"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// mistakes replace a text of one script. alone is the invariant that finds the mistake without the
// rules, if one does.
var mistakes = []struct {
	name, script, old, new string
	alone                  string
}{
	{"a held key is granted", "acquire", "if live and not (s == 'r'", "if live and s ~= 'h' and not (s == 'r'", "holder"},
	{"a reserved key is granted", "acquire", "if live and not (s == 'r' and h == request)", "if live and s ~= 'r'", ""},
	{"a cooling key is granted", "acquire", "if live and not (s == 'r'", "if live and s ~= 'c' and not (s == 'r'", ""},
	{"a repeat finds itself busy", "acquire", "if s == 'h' and h == request then", "if false then", ""},
	{"an expired lease is granted again", "acquire", "if not live or call('HGET'", "if call('HGET'", ""},
	{"a late duplicate is granted", "acquire", "if v[9] and string.find(v[9], request, 1, true) then return {5} end", "", "ended"},
	{"a takeover is not noted", "acquire", "if not a then call('HSET', KEYS[1], 'a', '1') end", "", ""},
	{"at most once takes over", "acquire", "if (a or s == 'h') and mode == 'most' then", "if false then", ""},
	{"a refusal does not renew the mark", "acquire", "redis.pcall('PEXPIRE', KEYS[1], ARGV[6])", "", ""},
	{"a token is the time", "acquire", "math.max(f + 1, now)", "now", "token"},
	{"a token is the last one and 1", "acquire", "math.max(f + 1, now)", "f + 1", "token"},
	{"a grant has no TTL", "acquire", "call('PEXPIRE', KEYS[1], retention)\n  return", "return", "holder"},
	{"a plain grant has no TTL", "acquire", "'PX', ARGV[6], 'NX'", "'NX'", ""},
	{"a plain grant replaces what is there", "acquire", "'PX', ARGV[6], 'NX'", "'PX', ARGV[6]", "ended"},
	{"a plain release frees another's hold", "release", "string.sub(stored, 1, 28) == 'h' .. ARGV[1] .. ' ' then", "string.sub(stored, 1, 1) == 'h' then", ""},
	{"a plain release of a once key frees another's hold", "release", "local t = string.sub(stored, 1, 28) == 'o' .. grant_id .. ' ' and", "local t =", ""},
	{"a plain release of a once key forgets its run", "release", "'t', t, 'n', 1)", "'t', t)", ""},
	{"a plain completion ends another's hold", "complete", "if own ~= 'o' .. id then return 0 end", "", ""},
	{"a repeated plain completion is refused", "complete", "if own == 'd' .. id then return 1 end", "", ""},
	{"a plain record has no TTL", "complete", "ARGV[2], 'PX', ARGV[3])", "ARGV[2])", "record"},
	{"an unfolded record is a free key", "acquire", "s = 'd', e = e,", "e = e,", "record"},
	{"an unfolded hold of a once key forgets its run", "acquire", "p.n, p.g, p.m = '1',", "p.n, p.g, p.m = nil,", ""},
	{"a renewed hold of a once key is exclusive", "renew", "if p.n then form, m = 'o', #g .. ' ' .. g .. m end", "", ""},
	{"a group releases another's hold", "deal", "string.sub(value, 1, 28) == 'h' .. ARGV[1 + i] .. ' '", "string.sub(value, 1, 1) == 'h'", ""},
	{"a group acquires a held key", "deal", "'PX', ARGV[arg + 2], 'NX'", "'PX', ARGV[arg + 2]", "holder"},
	{"a hold of a group has no TTL", "deal", "'PX', ARGV[arg + 2], 'NX'", "'NX'", ""},
	{"a group does not report that a key is held", "deal", "if not set or set.err then", "if false then", "holder"},
	{"a group does not report that a hold is not its own", "deal", "if value ~= 1 then", "if false then", ""},
	{"a clean release frees the next holder's tokens", "release", "if now > tonumber(last) and now > (tonumber(v[3]) or math.huge) then", "if true then", "token"},
	{"a clean release forgets ended ids", "release", "ARGV[5] ~= '1' and not v[4] and", "", ""},
	{"a clean release forgets the queue", "release", "and call('ZCARD', KEYS[2]) == 0 then", "then", ""},
	{"an unfolded hold has no TTL", "acquire", "if left >= 0 then redis.call('PEXPIRE', key, left + 1) end", "", "record"},
	{"an unfolded hold forgets its renewals", "acquire", "x = x > 0 and x or t + d", "x = t + d", ""},
	{"an expired plain hold is renewed", "renew", "if x <= now then return 0 end", "", ""},
	{"a queue has no TTL", "acquire", "call('PEXPIRE', KEYS[2], retention)", "", ""},
	{"the queue is served from its end", "acquire", "'NX', now, member", "'NX', -now, member", ""},
	{"a record is run again", "acquire", "if v[1] == 'd' then", "if false then", "record"},
	{"an expired lease is renewed", "renew", " or x <= now then return 0 end", " then return 0 end", ""},
	{"another's lease is renewed", "renew", "or v[2] ~= hold or", "or", ""},
	{"a revoked lease is renewed", "renew", "if v[5] == '1' then return 2 end", "", ""},
	{"a release frees another's hold", "release", "if v[1] ~= 'h' or v[2] ~= grant_id then", "if v[1] ~= 'h' then", "holder"},
	{"a release does not remember", "release", "if ARGV[5] == '1' then remember(v[4] or '', grant_id) elseif", "if", "ended"},
	{"a stale release does not remember", "release", "if ARGV[5] == '1' then remember(v[4] or '', grant_id) end", "", ""},
	{"a release forgets the last token", "release", "if last ~= v[3] then call('HSET', KEYS[1], 'f', last) end", "", "token"},
	{"a release notifies no waiter", "release", "local reserved = reserve(ARGV[6], ARGV[7], ARGV[8])", "local reserved", ""},
	{"an abandoned hold is released", "release", "call('HSET', KEYS[1], 'a', '1')", "", ""},
	{"a dead waiter counts as notified", "release", "> 0 or counts_all == '0'", ">= 0", ""},
	{"the queue outlives the hash", "release", "outlive(math.ceil(reservation / 1000) + minute)", "", ""},
	{"the queue outlives the hash of a cleared key", "clear", "outlive(math.ceil(ARGV[2] / 1000) + minute)", "", ""},
	{
		"an ended id is remembered for as long as the hash lives", "leave", "outlive(minute) -- planted:remembered-for-a-minute",
		"if call('PTTL', KEYS[1]) < 0 then call('PEXPIRE', KEYS[1], minute) end", "",
	},
	{"a withdrawal does not remember", "leave", "if ours or not k.bad then remember(k.l, request) end", "", "ended"},
	{"a withdrawal keeps the turn", "leave", "pass_on(ARGV[5], ARGV[6], ARGV[7])", "call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd', 'v')", ""},
	{"a withdrawal stays in the queue", "leave", "call('ZREM', KEYS[2], ARGV[2] .. request)", "0", ""},
	{"a withdrawal ends that the key is abandoned", "leave", "if k.s == 'h' then\n", "if k.s == 'h' then call('HDEL', KEYS[1], 'a')\n", ""},
	{"a withdrawn grant counts as a run", "leave", "if k.n > 0 then call('HSET', KEYS[1], 'n', k.n - 1) end", "", ""},
	{"a rotation passes the waiters by", "rotate", "if reserved then", "if false then", ""},
	{"a rotation ends another's hold", "rotate", "if k.s ~= 'h' or k.h ~= grant_id then", "if k.s ~= 'h' then", ""},
	{"a completion ends another's hold", "complete", "if k.s ~= 'h' or k.h ~= ARGV[1] then", "if k.s ~= 'h' then", ""},
	{"a completion replaces a record", "complete", "if k.s ~= 'h' or k.h ~= ARGV[1] then", "if k.s ~= 'd' and (k.s ~= 'h' or k.h ~= ARGV[1]) then", ""},
	{"a completion notifies no waiter", "complete", "call('PUBLISH', ARGV[5] .. string.sub(w, 1, -27), 'w' .. string.sub(w, -26))", "", ""},
	{"a record ends with the memory of ids", "leave", "if v[1] == 'd' and not v[2] then", "if false then", "record"},
	{"a revocation marks nothing", "revoke", "call('HSET', KEYS[1], 'v', '1')", "", ""},
	{"a late revocation meets the next hold", "revoke", "if ARGV[2] then remember(k.l, ARGV[2]) end", "", ""},
	{"a clear frees a held key", "clear", "if k.s == 'h' and k.live or k.u > 0 then return 0 end", "", "holder"},
	{"a release deletes a key with parked entries", "release", "and not v[6] and", "and", ""},
	{"a release soon forgets parked entries", "release", "if v[6] then outlive(parked) end", "", ""},
	{"a release to a waiter reports parked entries", "release", "v[6] and not reserved and", "v[6] and", ""},
	{"a parked entry loses its place", "park", "call('ZREM', KEYS[3], entry) -- planted:parked-in-its-place", "call('ZADD', KEYS[2], now, entry)", ""},
	{"an entry that is parked again is woken", "park", "call('ZREM', KEYS[3], entry) -- planted:parked-in-its-place", "", ""},
	{"parked entries have no TTL", "park", "if call('PTTL', KEYS[2]) < keep then call('PEXPIRE', KEYS[2], keep) end", "", "left"},
	{"parked entries end early", "park", "if call('PTTL', KEYS[2]) < keep then", "if true then", ""},
	{"a late waker removes an entry that is parked again", "unpark", "if since and (newest == 0 or ours) then", "if since then", ""},
	{"woken entries do not count", "unpark", "if begins(entry) then woken = woken + 1 end", "", ""},
	{"woken entries have no TTL", "unpark", "if #reply > 5 then call('PEXPIRE', KEYS[3], marks_ttl) end", "", ""},
	{"a key without entries says that it has some", "unpark", "redis.pcall('HDEL', KEYS[1], 'p')", "", ""},
	{"a share is granted beside an exclusive hold", "acquire_share", "elseif k.live and (k.s ~= 's' or k.v) then", "elseif k.live and (k.s == 'r' or k.v) then", "holder"},
	{"an exclusive hold is granted beside shares", "acquire", "if live and not (s == 'r'", "if live and s ~= 's' and not (s == 'r'", "holder"},
	{"a share is granted without room", "acquire_share", "busy = busy or not own and k.c + weight > limit", "", "limit"},
	{"a waiter is granted a share without room", "release_share", "if limit and k.c + weight <= limit then", "if limit then", ""},
	{"a share overtakes the queue", "acquire_share", "busy = not own and call('ZCARD', KEYS[2]) > 0", "", ""},
	{"a repeat of a share counts twice", "acquire_share", "if call('ZADD', KEYS[3], 'GT', till, text) == 1 then k.c, k.u = k.c + weight, k.u + weight end", "call('ZADD', KEYS[3], 'GT', till, text) k.c, k.u = k.c + weight, k.u + weight", ""},
	{"a late duplicate is granted a share", "acquire_share", "if string.find(k.l, id, 1, true) then return {5} end", "", ""},
	{"a request for a share does not remember", "release_share", "if ours or not k.bad then remember(k.l, id) end", "", ""},
	{"the token of a phase is the time", "acquire_share", "k.t = math.max(k.f + 1, now)", "k.t = now", "token"},
	{"a phase keeps the token before it", "acquire_share", "k.t = math.max(k.f + 1, now)", "k.t = math.max(k.f, now)", "token"},
	{"a share of a reserved key is granted", "acquire_share", "elseif k.live and (k.s ~= 's' or k.v) then", "elseif k.live and (k.s == 'h' or k.s == 'c' or k.v) then", ""},
	{"a share of revoked ones is granted", "acquire_share", "elseif k.live and (k.s ~= 's' or k.v) then", "elseif k.live and k.s ~= 's' then", ""},
	{"the first share brings none with it", "acquire_share", "serve(k, '', ARGV[7], ARGV[8], ARGV[9]) -- planted:share-brings-others", "", ""},
	{"the end of a share serves no waiter", "release_share", "served = serve(k, '', ARGV[5], ARGV[6], ARGV[7]) -- planted:share-served", "", ""},
	{"a writer that gives up serves no waiter", "leave", "local served = serve(k, '', ARGV[5], ARGV[6], ARGV[7])", "local served = 0", ""},
	{"a phase that expired is reserved for no waiter", "acquire_share", "k.closed and reserve(reservation, channel, counts_all)", "false", ""},
	{"the first waiter is dropped at once", "acquire_share", "if now - tonumber(seen) <= head_silent then", "if false then", ""},
	{"the weights of expired shares count", "acquire_share", "k.c - c, k.u - u, true", "k.c, k.u, true", ""},
	{"a share that was released counts", "release_share", "  else\n    k.c = k.c - weight\n", "  else\n", ""},
	{"a share that cools leaves its place", "release_share", "if call('ZADD', KEYS[3], 'GT', now + cooldown, 'c' .. text) == 0 then k.c = k.c - weight end", "k.c = k.c - weight", ""},
	{"the end of a phase is that of its last grant", "acquire_share", "k.x, k.d = math.max(k.x, till), math.max(k.d, length)", "k.x, k.d = till, math.max(k.d, length)", "holder"},
	{"the end of a phase is not that of the last share", "release_share", "call('HSET', KEYS[1], 'c', k.c, 'u', k.u, 'x', k.x)", "call('HSET', KEYS[1], 'c', k.c, 'u', k.u)", ""},
	{"an expired share is renewed", "renew_share", "if not till or tonumber(till) <= now then return {0} end", "if not till then return {0} end", ""},
	{"a revoked share is renewed", "renew_share", "if k.v then return {2} end", "", ""},
	{"a released share is renewed", "renew_share", "if not till or tonumber(till) <= now then return {0} end", "if k.s ~= 's' then return {0} end", ""},
	{"the renewal of a share leaves the end of its phase", "renew_share", "if now + lease > k.x then", "if false then", "holder"},
	{"shares have no TTL", "acquire_share", "call('PEXPIRE', KEYS[3], keep)", "", ""},
	{"a clear ends shares", "clear", "k.live or k.u > 0 then", "k.live then", ""},
	{"a phase forgets that a hold was abandoned", "acquire_share", "call('HSET', KEYS[1], 'a', '1') -- first, because maxmemory", "-- because maxmemory", ""},
	{"any process adopts a hold", "adopt", "k.h ~= from and not mine", "false", "holder"},
	{"an expired hold is adopted", "adopt", "or not k.live or k.h ~= from", "or k.h ~= from", ""},
	{"a revoked hold is adopted", "adopt", "if k.v then return {2} end\nlocal reply", "local reply", ""},
	{"a repeated adoption is refused", "adopt", "k.h ~= from and not mine", "k.h ~= from", ""},
	{"a late adoption is not refused", "adopt", "if string.find(k.l, request, 1, true) then return {0} end", "", ""},
	{"an adoption keeps the token", "adopt", "grant(k.f, nil", "grant(k.t, nil", ""},
	{"an adopted id is forgotten", "adopt", "remember(k.l, from)", "", ""},
	{"an adoption is another run", "adopt", "grant(k.f, nil", "grant(k.f, k.n + 1", ""},
	{"an interim answer of any run", "interim", "if k.h ~= ARGV[1] and not string.find(k.l, ARGV[1], 1, true) then return 0 end", "", ""},
	{"an interim answer of an earlier run", "interim", "or k.n ~= tonumber(ARGV[2])", "", ""},
	{"an interim answer outlives its run", "release", "'s', 'h', 'o', 'x', 'd', 'v', 'r', 'a', 'm', 'g')", "'s', 'h', 'o', 'x', 'd', 'v', 'a', 'm', 'g')", ""},
	{"a clear forgets its id", "clear", "if ARGV[7] ~= '' then remember('', ARGV[7]) end", "", ""},
}

// TestTrace checks that the trace of a failure is short and that its last line is the failure.
func TestTrace(t *testing.T) {
	s := mistaken(t, "or v[2] ~= grant_id then", "then")
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
		for seed := uint64(1); ; seed++ {
			v := schedule.RunAlone(s, seed)
			if v != nil && v.Check != m.alone || seed == 100 {
				t.Errorf("%s: %v after %d schedules, want invariant %s", m.name, v, seed, m.alone)
			}
			if v != nil || seed == 100 {
				break
			}
		}
	}
}
