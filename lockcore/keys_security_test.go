package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// adversary draws names that look like other names, tags, queues, channels, spaces and prefixes.
func adversary() *rapid.Generator[string] {
	return rapid.OneOf(
		nasty(),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
			"holdfast", ":1:", ":2:", "x:", "o:", "{", "}", "{}", ":q", "wake:", "%7B", "%", "a", "\x00", "}:q", "p", "p:1:x:{a}", "\r\n", "*", "[", "\xff",
		}), 1, 8), func(parts []string) string { return strings.Join(parts, "") }),
	)
}

// Names in Redis are injective over prefix, kind and key together, whatever looks like what; no name is another one's queue or a channel; both
// of a key are in one slot, which only the key decides.
func TestNamesNeverMeet(t *testing.T) {
	prefixes := rapid.OneOf(
		rapid.SampledFrom([]string{"holdfast", "p", "p:1:x:", "p:1:o:", "p:1", "p:", ":q", "%7B", "holdfast:1:wake:", "p*", "-"}),
		rapid.StringOfN(rapid.SampledFrom([]rune(":1xopq%-")), 1, 10, -1),
	)
	type id struct {
		prefix string
		kind   lockcore.Kind
		key    string
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func() id {
			return id{prefixes.Draw(t, "prefix"), kinds().Draw(t, "kind"), adversary().Draw(t, "key")}
		}
		a, b := draw(), draw()
		switch rapid.IntRange(0, 3).Draw(t, "alike") {
		case 0:
			b.key = a.key
		case 1:
			b = id{a.prefix, a.kind, lockcore.Escape(a.key)} // what stands in Redis for a
		}
		ka, kb := lockcore.RedisKeys(a.prefix, a.kind, a.key), lockcore.RedisKeys(b.prefix, b.kind, b.key)
		if a == b != (ka == kb) || ka[0] == kb[1] || ka[1] == kb[0] || a != b && (ka[0] == kb[0] || ka[1] == kb[1]) {
			t.Fatalf("%q is %q, %q is %q", a, ka, b, kb)
		}
		if slot(ka[0]) != slot(ka[1]) || a.key == b.key && slot(ka[0]) != slot(kb[0]) {
			t.Fatalf("%q and %q: slots %d, %d, %d", a, b, slot(ka[0]), slot(ka[1]), slot(kb[0]))
		}
		if strings.HasPrefix(ka[0], a.prefix+":1:wake:") {
			t.Fatalf("%q looks like a channel", ka)
		}
	})
}

// A hundred thousand keys with the same text in braces do not end up in one slot: who chooses keys cannot choose a shard.
func TestSlotsCannotBeChosen(t *testing.T) {
	used := map[uint16]bool{}
	for i := range 100_000 {
		used[slot(lockcore.RedisKeys("holdfast", lockcore.KindOnce, "{hot}"+strings.Repeat("}", i%7)+rapidID(i))[0])] = true
	}
	if len(used) < 16000 { // of 16384: all but a few
		t.Errorf("%d slots", len(used))
	}
}

func rapidID(i int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[i>>16&15], digits[i>>12&15], digits[i>>8&15], digits[i>>4&15], digits[i&15]})
}

// What is too long is refused before anything is sent, at any length.
func TestTooLong(t *testing.T) {
	var count redistest.Counter
	o := redistest.Bubble(t).Options()
	o.Dialer = count.Dial(o.Dialer)
	l := plainLocker(t, o)
	ctx := t.Context()
	for _, n := range []int{513, 1 << 10, 1 << 20, 100 << 20} {
		key := strings.Repeat("k", n)
		_, acquire := l.Acquire(ctx, key, noWait)
		_, _, claim := l.Claim(ctx, key, lockcore.Claim{})
		_, inspect := l.Inspect(ctx, lockcore.KindOnce, key)
		for what, err := range map[string]error{
			"acquire": acquire, "claim": claim, "inspect": inspect, "revoke": l.Revoke(ctx, lockcore.KindOnce, key), "clear": l.Clear(ctx, lockcore.KindOnce, key),
		} {
			if !errors.Is(err, lockcore.ErrKey) || len(err.Error()) > 300 {
				t.Errorf("%s of %d bytes: %.300v", what, n, err)
			}
		}
		_, err := l.Acquire(ctx, "k", lockcore.Terms{Name: key})
		_, _, print := l.Claim(ctx, "k", lockcore.Claim{Fingerprint: []byte(key)})
		if !errors.Is(err, lockcore.ErrNotRun) || !errors.Is(print, lockcore.ErrNotRun) || len(err.Error())+len(print.Error()) > 500 {
			t.Errorf("name of %d bytes: %.300v; fingerprint: %.300v", n, err, print)
		}
	}
	if sent := count.Commands(); len(sent) > 0 {
		t.Errorf("sent: %q", sent)
	}
}

// A task and a traceparent of any length and content are clipped to a line each.
func TestClipped(t *testing.T) {
	m := redistest.Bubble(t)
	l, err := lockcore.New(m.Client(t), lockcore.Options{NoBatching: true, Observer: talker{}})
	ok(t, err)
	defer func() { _ = l.Close(t.Context()) }()
	le, err := l.Acquire(lockcore.WithTask(t.Context(), strings.Repeat("task\n\x1b[31m", 1<<20)), "k", noWait)
	ok(t, err)
	h, err := l.Inspect(t.Context(), lockcore.KindExclusive, "k")
	ok(t, err)
	if d := h.Holder; len(d.Task) != 128 || len(d.Traceparent) != 128 || strings.ContainsAny(d.Task+d.Traceparent, "\n\r\x1b\x00") || len(m.Redis.HGet(
		"holdfast:1:x:{k}", "m")) > 600 {
		t.Errorf("%+v", d)
	}
	ok(t, le.Release(t.Context()))
}

// talker is an Observer with a traceparent that is none.
type talker struct{}

func (talker) Start(ctx context.Context, _ lockcore.Attempt) context.Context { return ctx }
func (talker) Event(context.Context, lockcore.Event)                         {}
func (talker) Traceparent(context.Context) string                            { return strings.Repeat("00-\r\n\x00", 1<<20) }

func plainLocker(t *testing.T, o *redis.Options) *lockcore.Locker {
	t.Helper()
	rdb := redis.NewClient(o)
	l, err := lockcore.New(rdb, lockcore.Options{NoBatching: true})
	ok(t, err)
	t.Cleanup(func() {
		_ = l.Close(context.Background())
		_ = rdb.Close()
	})
	return l
}
