package redis_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// mostElements is how many shares and waiters a script touches at most, so that no key blocks the
// server.
const mostElements = 1000

// counted returns a script that does the same as the script with this name, and stores under
// KEYS[1]..':n' how many shares and waiters it has touched: the ids in the arguments and replies of
// its commands, and the elements of keys that it deletes.
func counted(s *wire.Script) *redis.Script {
	return redis.NewScript(`
local real, ids, n = redis, {}, 0
local function note(v)
  if type(v) == 'table' then
    for _, e in ipairs(v) do note(e) end
  elseif type(v) == 'string' then
    for id in string.gmatch(v, string.rep('%u', 26)) do
      if not ids[id] then ids[id], n = true, n + 1 end
    end
  end
end
local function wrap(call)
  return function(...)
    local args = {...}
    if args[1] == 'DEL' then
      for _, size in ipairs({'ZCARD', 'HLEN'}) do
        local elements = real.pcall(size, args[2])
        if type(elements) == 'number' then n = n + elements end
      end
    end
    local reply = call(...)
    note(args)
    note(reply)
    return reply
  end
end
local redis = {call = wrap(real.call), pcall = wrap(real.pcall)}
local function script()
` + s.Text + `
end
local reply = script()
real.call('SET', KEYS[1] .. ':n', n)
return reply
`)
}

// numbered returns a different id for each n.
func numbered(letter string, n int) string {
	text := []byte(id(letter))
	for i := len(text) - 1; i >= 20; i-- {
		text[i] = byte('A' + n%26)
		n /= 26
	}
	return string(text)
}

// crowd is the data of a shared key with many shares.
type crowd struct {
	held, cool, expired, waiters int
	over                         bool // the last share has expired too
}

// phase stores c. Each share has the weight 1. The share of me is held.
func (b *oneKey) phase(c crowd) {
	b.Helper()
	b.set(nil)
	ctx, now := b.Context(), b.now()
	b.must(b.rdb.Del(ctx, b.keys[0]+":s").Err())
	var members []redis.Z
	hash := map[string]any{"s": "s", "h": me, "t": now, "f": now, "d": time.Hour.Microseconds(), "o": mine, "m": "who"}
	add := func(prefix, id string, end int64) {
		members = append(members, redis.Z{Score: float64(end), Member: prefix + id + permit})
		hash[prefix+id] = fmt.Sprintf("%s\n%d\nwho", mine, now)
	}
	far := now + time.Hour.Microseconds()
	if c.over {
		far = now - 1
	} else {
		add("", me, far)
		c.held++
	}
	for i := range c.held - len(members) {
		add("", numbered("H", i), far)
	}
	for i := range c.cool {
		add("c", numbered("C", i), far)
	}
	for i := range c.expired {
		add("", numbered("E", i), now-1000+int64(i%7))
	}
	hash["x"], hash["c"], hash["u"] = far, len(members), len(members)-c.cool
	for part := range slices.Chunk(members, 1000) {
		b.must(b.rdb.ZAdd(ctx, b.keys[0]+":s", part...).Err())
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(hash)), 1000) {
		fields := map[string]any{}
		for _, name := range part {
			fields[name] = hash[name]
		}
		b.must(b.rdb.HSet(ctx, b.keys[0], fields).Err())
	}
	var queue []redis.Z
	for i := range c.waiters {
		queue = append(queue, redis.Z{Score: float64(now), Member: listener + numbered("W", i) + unlimited})
	}
	for part := range slices.Chunk(queue, 1000) {
		b.must(b.rdb.ZAdd(ctx, b.keys[1], part...).Err())
	}
	for _, key := range []string{b.keys[0], b.keys[1], b.keys[0] + ":s"} {
		b.must(b.rdb.PExpire(ctx, key, standing).Err())
	}
}

// steps runs a script until it does not ask for another step. It returns the last reply, the number
// of steps, and how many shares and waiters a step has touched at most.
func (b *oneKey) steps(c call) (reply []any, steps, most int) {
	b.Helper()
	script, cmd := counted(c.Script), b.command(c)
	keys, texts := cmd.Texts()
	var args []any
	for _, text := range texts {
		args = append(args, text)
	}
	for reply = []any{int64(-1)}; reply[0] == int64(-1); steps++ {
		if steps > 100 {
			b.Fatalf("%s: no end after %d steps", c.Name, steps)
		}
		v, err := script.Run(b.Context(), b.rdb, keys, args...).Result()
		b.must(err)
		reply = wire.Elements(v)
		n, err := b.rdb.Get(b.Context(), b.keys[0]+":n").Int()
		b.must(err)
		most = max(most, n)
	}
	return reply, steps, most
}

func renewShare(text string) call {
	return call{Script: wire.RenewShare, make: func(k *backend.Key) wire.Command {
		r := backend.RenewRequest{Key: k, ID: me, Lease: lease, Holder: "who", Share: backend.Share{Limit: 1, Weight: 1}}
		cmds, _ := wire.Renewals([]backend.RenewRequest{r}, 1)
		return cmds[0]
	}}.with("text", text)
}

// unlimited is the end of a request for a share beside any number of others.
const unlimited = "/1000000000/1/"

// A script touches few shares, however many have expired, are held, cool or wait. If there is more
// to remove first, it says so, and the same call then gets the reply that it gets with few shares.
// Shows: W6
func TestScriptSteps(t *testing.T) {
	testlevel.Full(t)
	const many = 2 * mostElements
	withdraw := releaseShare(me+permit, 0, 0).with("locker", mine)
	for name, c := range map[string]struct {
		crowd
		call
		reply any // the first element
	}{
		"acquire, all expired":       {crowd{expired: many, over: true}, acquire(next, mine, "exclusive", "", 0), 1},
		"acquire, held":              {crowd{held: many}, acquire(next, mine, "exclusive", "", 1), 0},
		"acquire a share":            {crowd{expired: many}, acquireShare(next+permit, mine, 0), 1},
		"acquire a share, full":      {crowd{expired: many, held: 2}, acquireShare(next+permit, mine, 1), 0},
		"acquire a share, all over":  {crowd{expired: many, over: true}, acquireShare(next+permit, mine, 0), 1},
		"acquire a share, revoked":   {crowd{expired: many}, acquireShare(next+permit, mine, 0), 1},
		"acquire a share, a queue":   {crowd{waiters: many}, acquireShare(next+unlimited, mine, 1), 0},
		"release a share":            {crowd{expired: many}, releaseShare(me+permit, 0, 0), 1},
		"release a share, cools":     {crowd{expired: many, cool: many}, releaseShare(me+permit, 1, time.Minute), 1},
		"release a share, a queue":   {crowd{waiters: many}, releaseShare(me+permit, 0, 0), 1},
		"withdraw a share":           {crowd{expired: many, waiters: many}, withdraw, 1},
		"withdraw, not held":         {crowd{expired: many, waiters: many}, withdraw.with("text", next+permit), 0},
		"renew a share":              {crowd{expired: many, held: many}, renewShare(me + permit), 1},
		"leave":                      {crowd{expired: many, waiters: many}, leave(next, listener, 1), 0},
		"leave, all expired":         {crowd{expired: many, over: true}, leave(next, listener, 0), 0},
		"clear, held":                {crowd{expired: many, cool: many}, forget, 0},
		"clear, all cool or expired": {crowd{expired: many, cool: many}, forget, 1},
		"clear, all expired":         {crowd{expired: many, over: true}, forget, 1},
		"revoke":                     {crowd{expired: many, held: many, cool: many}, revoke, 1},
		"inspect":                    {crowd{expired: 700, held: many}, inspect, "s"},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(b *oneKey) {
				b.phase(c.crowd)
				switch name {
				case "acquire a share, revoked": // the revocation ends with the last held share
					b.must(b.rdb.HSet(b.Context(), b.keys[0], "v", 1).Err())
					b.steps(releaseShare(me+permit, 0, time.Hour))
				case "clear, all cool or expired":
					b.steps(releaseShare(me+permit, 0, time.Hour))
				}
				reply, steps, most := b.steps(c.call)
				if want := fmt.Sprint(c.reply); fmt.Sprint(reply[0]) != want {
					b.Errorf("the reply is %v, want %v", reply, want)
				}
				if most > mostElements {
					b.Errorf("a script touches %d shares and waiters, want at most %d", most, mostElements)
				}
				b.Logf("%d steps, at most %d elements", steps, most)
			})
		})
	}
}
