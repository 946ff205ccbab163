package redis_test

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// Each request belongs to the locker that is declared with it. All lockers except dead are
// subscribed. The tests receive the notifications to listener.
var (
	me, mine           = id("M"), id("A")
	mismatch, listener = id("O"), id("B")
	next, dead         = id("N"), id("D") // requests in the queue: next belongs to listener, and the request dead to the locker dead
)

func id(letter string) string { return strings.Repeat(letter, 26) }

const (
	lease     = 30 * time.Second
	window    = time.Minute // longer than any test; the tests write the end of a turn and do not wait for it
	keep      = 10 * time.Minute
	retention = 2 * time.Hour
	standing  = time.Hour // TTL of a hash that a test has written
	wakes     = "wake:"
	tolerance = 5 * time.Second
)

type (
	fields map[string]any
	rel    time.Duration // a point in time, relative to now
	span   time.Duration // a number of microseconds
)

func (f fields) with(g fields) fields {
	f = maps.Clone(f)
	maps.Copy(f, g)
	return f
}

func (f fields) without(names ...string) fields {
	f = maps.Clone(f)
	for _, name := range names {
		delete(f, name)
	}
	return f
}

// states returns the states of a key. A live hold began 10 s ago and has 20 s left. An expired one
// expired 10 s ago.
func states() map[string]fields {
	held := func(request, locker string) fields {
		return fields{
			"s": "h", "h": request, "o": locker, "x": rel(20 * time.Second), "d": span(lease), "m": "who " + request, "t": rel(-10 * time.Second),
			"f": rel(-time.Minute), "n": 1,
		}
	}
	free := fields{"t": rel(-time.Minute), "f": rel(-time.Minute), "n": 1}
	reserved := func(request, locker string) fields {
		return free.with(fields{"s": "r", "h": request, "o": locker, "x": rel(30 * time.Second), "d": span(window)})
	}
	done := func(hold string) fields {
		return free.with(fields{"s": "d", "e": hold, "r": "record", "m": "who " + hold, "g": "tag"})
	}
	over := fields{"x": rel(-10 * time.Second), "t": rel(-40 * time.Second)}
	abandoned := fields{"a": 1, "m": "who Z", "g": "tag"}
	return map[string]fields{
		"new":                  {},
		"free":                 free,
		"mine":                 held(me, mine),
		"mine after abandoned": held(me, mine).with(fields{"a": 1}),
		"mine tagged":          held(me, mine).with(fields{"g": "tag"}),
		"mine over":            held(me, mine).with(over),
		"mine revoked":         held(me, mine).with(fields{"v": 1}),
		"mine revoked, over":   held(me, mine).with(over).with(fields{"v": 1}),
		"other's":              held(mismatch, listener),
		"other's tagged":       held(mismatch, listener).with(fields{"g": "tag"}),
		"other's over":         held(mismatch, listener).with(over),
		"other's over tagged":  held(mismatch, listener).with(over).with(fields{"g": "tag"}),
		"other's revoked":      held(mismatch, listener).with(fields{"v": 1}),
		"other's revoked over": held(mismatch, listener).with(over).with(fields{"v": 1}),
		"my turn":              reserved(me, mine),
		"my turn over":         reserved(me, mine).with(fields{"x": rel(-time.Minute)}),
		"my turn, abandoned":   reserved(me, mine).with(abandoned),
		"other's turn":         reserved(mismatch, listener),
		"other's turn over":    reserved(mismatch, listener).with(fields{"x": rel(-time.Minute)}),
		"other's turn, aband.": reserved(mismatch, listener).with(abandoned),
		"cooling":              free.with(fields{"s": "c", "x": rel(30 * time.Second), "d": span(time.Minute)}),
		"cooling over":         free.with(fields{"s": "c", "x": rel(-time.Second), "d": span(time.Minute)}),
		"done":                 done(me),
		"done by other":        done(mismatch),
		"abandoned":            free.with(abandoned),
		"remembered":           free.with(fields{"l": id("X") + me}),
		"remembered, other's":  held(mismatch, listener).with(fields{"l": me + id("X")}),
	}
}

// oneKey has one key in one Redis.
type oneKey struct {
	*testing.T
	rdb  *redis.Client
	keys []string

	heard <-chan *redis.Message // notifications to listener
}

// onEach runs a test on Redis in memory, and from level full also on a real server. listener is
// subscribed to both.
func onEach(t *testing.T, test func(b *oneKey)) {
	t.Helper()
	run := func(t *testing.T, rdb *redis.Client) {
		sub := rdb.Subscribe(t.Context(), wakes+listener)
		t.Cleanup(func() { _ = sub.Close() })
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The channel is read all the time, because miniredis sends a message only when it is
		// received.
		b := &oneKey{T: t, rdb: rdb, heard: sub.Channel(redis.WithChannelSize(1000),
			redis.WithChannelHealthCheckInterval(0))} // a check that dials again would wait for the server in memory, and the server for its reader
		b.use("k")
		test(b)
	}
	t.Run("memory", func(t *testing.T) { run(t, redistest.Bubble(t).Client(t)) })
	t.Run("real", func(t *testing.T) {
		testlevel.Full(t)
		run(t, redistest.Real(t).Client(t))
	})
}

func (b *oneKey) use(key string) {
	k := wire.StoredNames("test", backend.KindOnce, key)
	b.keys = []string{k[0], k[1], wire.Stored(k[0], wire.Parked), wire.Stored(k[0], wire.Woken)}
}

func (b *oneKey) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *oneKey) now() int64 {
	b.Helper()
	now, err := b.rdb.Time(context.Background()).Result()
	b.must(err)
	return now.UnixMicro()
}

// set stores f and the members of the queue, in order.
func (b *oneKey) set(f fields, queue ...string) {
	b.Helper()
	ctx, now := b.Context(), b.now()
	b.must(b.rdb.Del(ctx, b.keys...).Err())
	if len(f) > 0 {
		raw := map[string]any{}
		for name, v := range f {
			switch v := v.(type) {
			case rel:
				raw[name] = now + time.Duration(v).Microseconds()
			case span:
				raw[name] = time.Duration(v).Microseconds()
			default:
				raw[name] = v
			}
		}
		b.must(b.rdb.HSet(ctx, b.keys[0], raw).Err())
		b.must(b.rdb.PExpire(ctx, b.keys[0], standing).Err())
	}
	for i, member := range queue {
		b.must(b.rdb.ZAdd(ctx, b.keys[1], redis.Z{Score: float64(now - 1000 + int64(i)), Member: member}).Err())
		b.must(b.rdb.PExpire(ctx, b.keys[1], time.Minute).Err())
	}
}

// like reports the differences between the hash and want.
func (b *oneKey) like(want fields) {
	b.Helper()
	got, err := b.rdb.HGetAll(b.Context(), b.keys[0]).Result()
	b.must(err)
	now := b.now()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if w, ok := want[name]; !ok || !match(got[name], w, now) {
			b.Errorf("%s is %q, want %v (now %d)", name, got[name], want[name], now)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			b.Errorf("%s is missing, want %v", name, want[name])
		}
	}
}

func match(got, want any, now int64) bool {
	var n int64
	numeric := true
	switch g := got.(type) {
	case int64:
		n = g
	case string:
		var err error
		n, err = strconv.ParseInt(g, 10, 64)
		numeric = err == nil
	}
	near := func(x int64) bool {
		return numeric && time.Duration(n-x)*time.Microsecond <= tolerance && time.Duration(x-n)*time.Microsecond <= tolerance
	}
	switch w := want.(type) {
	case rel:
		return near(now + time.Duration(w).Microseconds())
	case span:
		return near(time.Duration(w).Microseconds())
	case int:
		return numeric && n == int64(w)
	case int64:
		return numeric && n == w
	}
	return got == want
}

// queue returns the members of the queue.
func (b *oneKey) queue() []string {
	b.Helper()
	q, err := b.rdb.ZRange(b.Context(), b.keys[1], 0, -1).Result()
	b.must(err)
	return q
}

// bound checks that each stored key has a TTL.
func (b *oneKey) bound() {
	b.Helper()
	for _, key := range b.keys {
		switch ttl, err := b.rdb.PTTL(b.Context(), key).Result(); {
		case err != nil:
			b.Error(err)
		case ttl == -1:
			b.Errorf("%s has no TTL", key)
		}
	}
}

// ttl checks the TTL of the hash.
func (b *oneKey) ttl(want time.Duration) {
	b.Helper()
	ttl, err := b.rdb.PTTL(b.Context(), b.keys[0]).Result()
	b.must(err)
	if ttl > want || ttl < want-tolerance {
		b.Errorf("the hash is kept for %v, want %v", ttl, want)
	}
}

// call is a command of a script for the key of the test.
type call struct {
	*wire.Script
	make func(k *backend.Key) wire.Command
	sets map[string]any // arguments that differ from those of the request
}

// with returns c with another value of an argument.
func (c call) with(arg string, value any) call {
	c.sets = maps.Clone(c.sets)
	if c.sets == nil {
		c.sets = map[string]any{}
	}
	c.sets[arg] = value
	return c
}

// sender sends the requests of a locker.
func sender(locker string) *wire.Sender {
	return &wire.Sender{Locker: locker, Channels: wakes, Single: true}
}

func acquire(request, locker, mode, tag string, queue int) call {
	return call{Script: wire.Acquire, make: func(k *backend.Key) wire.Command {
		if mode == "exclusive" {
			k.Kind = backend.KindExclusive
		}
		r := backend.AcquireRequest{
			Key: k, ID: request, Lease: lease, Holder: "who " + request, Retention: retention, Fingerprint: tag, AtMostOnce: mode == "most", Queue: queue == 1,
		}
		return sender(locker).Acquire(&r, false, new(wire.Room))
	}}
}

func renew(hold string) call { return renewFor(hold, lease, "") }

func renewFor(hold string, lease time.Duration, lastHold string) call {
	return call{Script: wire.Renew, make: func(k *backend.Key) wire.Command {
		cmds, _ := wire.Renewals([]backend.RenewRequest{{Key: k, ID: hold, Lease: lease, Retention: retention}}, 1)
		return cmds[0]
	}}.with("handed_off", lastHold)
}

func release(hold string, last any, abandon, remember int) call {
	return call{Script: wire.Release, make: func(k *backend.Key) wire.Command {
		r := backend.ReleaseRequest{Key: k, ID: hold, Retention: keep, Abandon: abandon == 1, Repeated: remember == 1}
		return sender(mine).Release(&r, 0, new(wire.Room))
	}}.with("token", last).with("reservation", window.Microseconds())
}

func leave(request, locker string, remember int) call {
	return call{Script: wire.Leave, make: func(k *backend.Key) wire.Command {
		return sender(locker).Withdraw(&backend.WithdrawRequest{Key: k, ID: request, Retention: keep, Repeated: remember == 1})
	}}.with("reservation", window.Microseconds()).with("wake", "px")
}

func complete(hold, record string, last any, remember int) call {
	return call{Script: wire.Complete, make: func(k *backend.Key) wire.Command {
		r := backend.CompleteRequest{Key: k, ID: hold, Record: []byte(record), Keep: keep, Repeated: remember == 1}
		return sender(mine).Complete(&r)
	}}.with("token", last)
}

// operatorID returns another id for each call of an operator.
func operatorID() string { return rand.Text() }

var (
	revoke = call{Script: wire.Revoke, make: func(k *backend.Key) wire.Command {
		return sender(mine).Revoke(&backend.RevokeRequest{Key: k}, operatorID(), wire.RevokeStep{})
	}}
	forget = call{Script: wire.Clear, make: func(k *backend.Key) wire.Command {
		return sender(mine).Clear(&backend.ClearRequest{Key: k}, operatorID())
	}}.with("keep_ms", keep.Milliseconds()).with("reservation", window.Microseconds())
	inspect = call{Script: wire.Inspect, make: func(k *backend.Key) wire.Command { return sender(mine).Inspect(k, backend.NoRecord) }}
)

// command returns the command of c for the key of b.
func (b *oneKey) command(c call) wire.Command {
	cmd := c.make(&backend.Key{Kind: backend.KindOnce, Name: "k", Stored: [2]string{b.keys[0], wire.Stored(b.keys[0], wire.Queue)}})
	for arg, value := range c.sets {
		cmd = cmd.With(arg, value)
	}
	return cmd
}

// try runs a script.
func (b *oneKey) try(c call) ([]any, error) {
	v, err := b.command(c).Run(b.Context(), b.rdb)
	return wire.Elements(v), err
}

func (b *oneKey) run(c call) []any {
	b.Helper()
	reply, err := b.try(c)
	if err != nil {
		b.Fatalf("%s: %v", c.Name, err)
	}
	return reply
}

// wantReply runs a script and compares its reply.
func (b *oneKey) wantReply(c call, want ...any) {
	b.Helper()
	got, now := b.run(c), b.now()
	same := func(g, w any) bool {
		_, text := g.(string)
		_, words := w.(string)
		return text == words && match(g, w, now)
	}
	if !slices.EqualFunc(got, want, same) {
		b.Errorf("%s returns %v, want %v", c.Name, got, want)
	}
}
