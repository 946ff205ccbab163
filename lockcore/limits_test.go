package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Keys, names and fingerprints that are too long are refused before any command is sent. The error
// is short, whatever their length.
func TestTooLong(t *testing.T) {
	var count redistest.Counter
	o := redistest.Bubble(t).Options()
	o.Dialer = count.Dial(o.Dialer)
	l := plainLocker(t, o)
	ctx := t.Context()
	for _, n := range []int{513, 1 << 10, 1 << 20, testlevel.Pick(t, 1<<22, 100<<20, 100<<20)} {
		key := strings.Repeat("k", n)
		_, acquire := l.Acquire(ctx, key, noWait)
		_, _, claim := l.Claim(ctx, key, lockcore.Claim{})
		_, inspect := l.Inspect(ctx, event.KindOnce, key)
		for what, err := range map[string]error{
			"acquire": acquire, "claim": claim, "inspect": inspect, "revoke": l.Revoke(ctx, event.KindOnce, key), "clear": l.Clear(ctx, event.KindOnce, key),
			"force": l.ForceClear(ctx, event.KindOnce, key, lockcore.Holding{State: lockcore.StateHeld}),
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

// A task and a traceparent of any length and content are cut to one line of 128 bytes each before
// they are stored.
func TestClipped(t *testing.T) {
	m := redistest.Bubble(t)
	l, err := lockcore.New(m.Client(t), lockcore.Options{NoGroups: true, Observer: talker{}})
	ok(t, err)
	defer func() { _ = l.Close(t.Context()) }()
	le, err := l.Acquire(lockcore.WithTask(t.Context(), strings.Repeat("task\n\x1b[31m", 1<<20)), "k", noWait)
	ok(t, err)
	h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
	ok(t, err)
	d := h.Holder
	if len(d.Task) != 128 || len(d.Traceparent) != 128 || strings.ContainsAny(d.Task+d.Traceparent, "\n\r\x1b\x00") {
		t.Errorf("the stored holder is %+v", d)
	}
	stored, err := m.Redis.Get("holdfast:2:x:{k}") // a plain hold is a string
	ok(t, err)
	if !strings.Contains(stored, d.Task) || !strings.Contains(stored, d.Traceparent) || len(stored) > 600 {
		t.Errorf("%d bytes are stored: %.700q", len(stored), stored)
	}
	ok(t, le.Release(t.Context()))
}

// talker is an Observer with an invalid traceparent.
type talker struct{}

func (talker) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (talker) Event(context.Context, event.Event)                             {}
func (talker) Traceparent(context.Context) string                             { return strings.Repeat("00-\r\n\x00", 1<<20) }

func plainLocker(t *testing.T, o *redis.Options) *lockcore.Locker {
	t.Helper()
	rdb := redis.NewClient(o)
	l, err := lockcore.New(rdb, lockcore.Options{NoGroups: true})
	ok(t, err)
	t.Cleanup(func() {
		_ = l.Close(context.Background())
		_ = rdb.Close()
	})
	return l
}
