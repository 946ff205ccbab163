package security_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// A field that changes during a hold causes at most the loss of the lease. Later calls of its
// holder return errors that callers know, and the process does not panic.
func TestPoisonedHold(t *testing.T) {
	p := newPoisoned(t)
	for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} {
		for _, field := range fields {
			for _, value := range bad {
				le, err := p.claim(p.a, kind, false)
				check(t, err)
				check(t, redistest.Unfold(t.Context(), p.rdb, hashOf(kind)))
				check(t, p.rdb.HSet(t.Context(), hashOf(kind), field, value).Err())
				p.clean("extend", le.Extend(t.Context(), time.Minute))
				if kind == event.KindOnce {
					p.clean("complete", le.Complete(t.Context(), []byte("record"), time.Minute))
				}
				p.clean("release", le.Release(t.Context()))
				p.forget(kind)
			}
		}
	}
}

// A key of another type in place of the hash or the queue is refused at once, with the error of
// Redis.
// Shows: X1, X2
func TestPoisonedTypes(t *testing.T) {
	p := newPoisoned(t)
	put := map[string]func(ctx context.Context, key string) error{
		"string": func(ctx context.Context, key string) error { return p.rdb.Set(ctx, key, "x", 0).Err() },
		"list":   func(ctx context.Context, key string) error { return p.rdb.RPush(ctx, key, "x").Err() },
		"set":    func(ctx context.Context, key string) error { return p.rdb.SAdd(ctx, key, "x").Err() },
		"stream": func(ctx context.Context, key string) error {
			return p.rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"x", "y"}}).Err()
		},
		"hash": func(ctx context.Context, key string) error { return p.rdb.HSet(ctx, key, "x", "y").Err() },
		"zset": func(ctx context.Context, key string) error {
			return p.rdb.ZAdd(ctx, key, redis.Z{Score: 1, Member: "x"}).Err()
		},
	}
	for _, place := range []struct{ end, right string }{{"", "hash"}, {":q", "zset"}} {
		for kind := range map[event.Kind]bool{event.KindExclusive: true, event.KindOnce: true} {
			for name, write := range put {
				if name == place.right {
					continue
				}
				ctx := t.Context()
				if place.end != "" { // a request reads the queue only if the key is taken
					_, err := p.claim(p.b, kind, false)
					check(t, err)
				}
				check(t, write(ctx, hashOf(kind)+place.end))
				start := time.Now()
				_, err := p.a.Inspect(ctx, kind, "k")
				wrongType(t, "inspect "+name+place.end, err)
				if kind == event.KindExclusive {
					_, err = p.a.Acquire(ctx, "k", lockcore.Terms{Wait: time.Minute})
				} else {
					_, _, err = p.a.Claim(ctx, "k", lockcore.Claim{Terms: lockcore.Terms{Wait: time.Minute}})
				}
				wrongType(t, "claim "+name+place.end, err)
				if d := time.Since(start); d > 30*time.Second {
					t.Errorf("%s%s: refused after %v", name, place.end, d)
				}
				p.clean("revoke", p.a.Revoke(ctx, kind, "k"))
				p.clean("clear", p.a.Clear(ctx, kind, "k"))
				p.forget(kind)
			}
		}
	}
}

func wrongType(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lockcore.ErrRecord) || errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "WRONGTYPE") ||
		!strings.Contains(fmt.Sprint(err), "{k}") {
		t.Errorf("%s: %v", what, err)
	}
}

// Members of a queue that no Locker has added delay no waiter.
func TestPoisonedQueue(t *testing.T) {
	p := newPoisoned(t)
	ctx := t.Context()
	le, err := p.claim(p.a, event.KindExclusive, false)
	check(t, err)
	got := make(chan error, 1)
	go func() {
		le, err := p.b.Acquire(ctx, "k", lockcore.Terms{Wait: time.Minute})
		if err == nil {
			err = le.Release(ctx)
		}
		got <- err
	}()
	members := []redis.Z{{Score: -1e308, Member: ""}, {Score: -1, Member: "short"}, {Score: 0, Member: strings.Repeat("\xff", 1<<20)}}
	for i := range 5000 {
		members = append(members, redis.Z{Score: float64(i), Member: fmt.Sprintf("%026d%026d", i, i)})
	}
	check(t, p.rdb.ZAdd(ctx, hashOf(event.KindExclusive)+":q", members...).Err())
	check(t, le.Release(ctx))
	check(t, <-got)
}

// Values of 10 MB are read, refused or shown. A record that does not decode is refused by every
// function that reads records.
func TestPoisonedSizes(t *testing.T) {
	testlevel.Full(t)
	p := newPoisoned(t)
	huge := strings.Repeat("9", 10<<20)
	for _, field := range fields {
		states["done"](p, event.KindOnce)
		check(t, redistest.Unfold(t.Context(), p.rdb, hashOf(event.KindOnce)))
		check(t, p.rdb.HSet(t.Context(), hashOf(event.KindOnce), field, huge).Err())
		_, err := guard.Once(t.Context(), p.a, "k", guard.OnceOptions{Terms: noWait}, nothing)
		if field == "r" {
			if !errors.Is(err, lockcore.ErrRecord) {
				t.Errorf("a huge record: %v", err)
			}
		} else {
			p.clean("once", err)
		}
		_, err = p.a.Inspect(t.Context(), event.KindOnce, "k")
		p.clean("inspect", err)
		p.forget(event.KindOnce)
	}
}

// A forged record is replayed only if it decodes. Every other one is refused and counted, and the
// handler does not run.
func TestPoisonedRecords(t *testing.T) {
	rdb := redistest.Real(t).Client(t)
	w := new(locktest.Recorder)
	l := newLocker(t, rdb, lockcore.Options{Observer: w})
	ctx, refused := t.Context(), 0
	for _, record := range []string{
		"", "\x01", "\x01\x01", "\x01\x01\x04json", "\x01\x01\x04json\x05abc", "\x01\x01\x04json\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", "\x02\x01\x04json\x02\"\"",
		"\x01\x09\x00\x00", "\x01\x01\xffjson\x02\"\"", "\x01\x01\x04json\x02{]", "\x01\x01\x04yaml\x02\"\"", "\x01\x03\x00\x01x", strings.Repeat("\x00", 1<<20),
	} {
		check(t, rdb.HSet(ctx, hashOf(event.KindOnce), "s", "d", "r", record, "n", 1, "t", 1).Err())
		_, err := guard.OnceValue(ctx, l, "k", guard.OnceOptions{}, func(context.Context) (string, error) {
			t.Errorf("the handler ran with the record %.20q", record)
			return "", nil
		})
		if !errors.Is(err, lockcore.ErrRecord) {
			t.Errorf("%.20q: %v", record, err)
		}
		if _, err := idempotency.Lookup(ctx, l, "k"); err == nil && record != "\x01\x01\x04json\x02{]" && record != "\x01\x01\x04yaml\x02\"\"" {
			t.Errorf("Lookup accepts %.20q", record) // the codec refuses those two
		}
		refused++
	}
	if bad := locktest.EventsOf[event.BadRecord](w); len(bad) != refused {
		t.Errorf("%d of %d counted", len(bad), refused)
	}
}
