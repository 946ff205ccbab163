package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const oneDay = 24 * time.Hour

// onBackends runs a test in virtual time on Redis and in memory.
func onBackends(t *testing.T, test func(t *testing.T, l *lockcore.Locker)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		testlevel.InMemory(t)
		synctest.Test(t, func(t *testing.T) {
			l, err := lockcore.New(redistest.Bubble(t).Client(t), lockcore.Options{})
			ok(t, err)
			defer func() { ok(t, l.Close(context.Background())) }()
			test(t, l)
		})
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, memoryLocker(t, lockcore.MemoryOptions{})) })
	})
}

func leaseOn(t *testing.T, l *lockcore.Locker, c lockcore.Claim) *lockcore.Lease {
	t.Helper()
	le, _, err := l.Claim(t.Context(), "k", c)
	ok(t, err)
	return le
}

// fixedOn claims "k" at most once, with a lease that is not renewed.
func fixedOn(t *testing.T, l *lockcore.Locker) *lockcore.Lease {
	t.Helper()
	le, _, err := l.Claim(access.WithFixed(t.Context()), "k", lockcore.Claim{AtMostOnce: true})
	ok(t, err)
	return le
}

func stateOf(t *testing.T, l *lockcore.Locker) lockcore.Holding {
	t.Helper()
	h, err := l.Inspect(t.Context(), event.KindOnce, "k")
	ok(t, err)
	return h
}

// However a run ends without an outcome, AtMostOnce remembers that for 100 days, and each refusal
// for another 100 days.
// Shows: O5
func TestAtMostOnceRemembersFor100Days(t *testing.T) {
	most := lockcore.Claim{Terms: noWait, AtMostOnce: true}
	for name, end := range map[string]func(*testing.T, *lockcore.Locker){
		"Abandon": func(t *testing.T, l *lockcore.Locker) { ok(t, leaseOn(t, l, most).Abandon(t.Context())) },
		"the lease expires": func(t *testing.T, l *lockcore.Locker) {
			fixedOn(t, l)
			time.Sleep(time.Minute)
		},
		"a renewed lease expires": func(t *testing.T, l *lockcore.Locker) {
			leaseOn(t, l, lockcore.Claim{Terms: lockcore.Terms{MaxHold: time.Hour}, AtMostOnce: true})
			time.Sleep(2 * time.Hour)
		},
		"an extended lease expires": func(t *testing.T, l *lockcore.Locker) {
			ok(t, fixedOn(t, l).Extend(t.Context(), time.Hour))
			time.Sleep(2 * time.Hour)
		},
		"no process adopts the hold": func(t *testing.T, l *lockcore.Locker) {
			ticketOf(t, leaseOn(t, l, most), time.Minute)
			time.Sleep(2 * time.Minute)
		},
		"the adopter abandons it": func(t *testing.T, l *lockcore.Locker) {
			le, err := l.Adopt(t.Context(), ticketOf(t, leaseOn(t, l, most), time.Minute), lockcore.Terms{})
			ok(t, err)
			ok(t, le.Abandon(t.Context()))
		},
		"the adopter dies": func(t *testing.T, l *lockcore.Locker) {
			_, err := l.Adopt(access.WithFixed(t.Context()), ticketOf(t, leaseOn(t, l, most), time.Minute), lockcore.Terms{})
			ok(t, err)
			time.Sleep(time.Minute)
		},
		"an AtLeastOnce run, and a refusal on the same day": func(t *testing.T, l *lockcore.Locker) {
			ok(t, leaseOn(t, l, lockcore.Claim{Terms: noWait}).Abandon(t.Context()))
			time.Sleep(23 * time.Hour)
			_, _, err := l.Claim(t.Context(), "k", most)
			wantErr(t, "a refusal", err, lockcore.ErrAbandoned)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBackends(t, func(t *testing.T, l *lockcore.Locker) {
				end(t, l)
				for range 2 {
					if h := stateOf(t, l); h.State != lockcore.StateAbandoned || h.KeepLeft < 99*oneDay {
						t.Fatalf("the key is %s for %v, want abandoned for 100 days", h.State, h.KeepLeft)
					}
					time.Sleep(99 * oneDay)
					_, _, err := l.Claim(t.Context(), "k", most)
					wantErr(t, "after 99 days", err, lockcore.ErrAbandoned)
				}
				time.Sleep(101 * oneDay)
				ok(t, leaseOn(t, l, most).Release(t.Context()))
			})
		})
	}
}

// Only an abandoned key is remembered for that long, and never for less than Keep.
func TestAtMostOnceKeeps(t *testing.T) {
	const keep = 7 * time.Hour
	most := lockcore.Claim{Terms: noWait, AtMostOnce: true, Keep: keep}
	for name, c := range map[string]struct {
		lasts time.Duration
		end   func(*testing.T, *lockcore.Locker)
	}{
		"released": {keep, func(t *testing.T, l *lockcore.Locker) { ok(t, leaseOn(t, l, most).Release(t.Context())) }},
		"done": {2 * time.Hour, func(t *testing.T, l *lockcore.Locker) {
			ok(t, leaseOn(t, l, most).Complete(t.Context(), []byte("r"), 2*time.Hour))
		}},
		"released after its adoption": {keep, func(t *testing.T, l *lockcore.Locker) {
			le, err := l.Adopt(t.Context(), ticketOf(t, leaseOn(t, l, most), time.Minute), lockcore.Terms{})
			ok(t, err)
			ok(t, le.Release(t.Context()))
		}},
		"AtLeastOnce, abandoned": {oneDay, func(t *testing.T, l *lockcore.Locker) {
			ok(t, leaseOn(t, l, lockcore.Claim{Terms: noWait, Keep: keep}).Abandon(t.Context()))
		}},
		"a Keep of a year, abandoned, and a refusal with a shorter Keep": {365 * oneDay, func(t *testing.T, l *lockcore.Locker) {
			ok(t, leaseOn(t, l, lockcore.Claim{Terms: noWait, AtMostOnce: true, Keep: 365 * oneDay}).Abandon(t.Context()))
			_, _, err := l.Claim(t.Context(), "k", most)
			wantErr(t, "a refusal", err, lockcore.ErrAbandoned)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onBackends(t, func(t *testing.T, l *lockcore.Locker) {
				c.end(t, l)
				time.Sleep(c.lasts - time.Minute)
				if h := stateOf(t, l); h.State == lockcore.StateFree && h.Attempt == 0 {
					t.Errorf("the data is gone before %v", c.lasts)
				}
				time.Sleep(2 * time.Minute)
				if h := stateOf(t, l); h.State != lockcore.StateFree || h.Attempt != 0 {
					t.Errorf("after %v the key is %+v, want no data", c.lasts, h)
				}
			})
		})
	}
}

// The server accepts no writes. An abandoned key is refused nevertheless.
func TestAtMostOnceRefusesWithoutWrites(t *testing.T) {
	t.Parallel()
	server := redistest.Real(t)
	rdb := server.Client(t)
	locks, err := lockcore.New(rdb, lockcore.Options{})
	ok(t, err)
	defer func() { ok(t, locks.Close(context.Background())) }()
	most := lockcore.Claim{Terms: noWait, AtMostOnce: true}
	ok(t, leaseOn(t, locks, most).Abandon(t.Context()))
	for setting, value := range map[string]string{"maxmemory": "1", "min-replicas-to-write": "1"} {
		ok(t, rdb.ConfigSet(t.Context(), setting, value).Err())
		_, _, err := locks.Claim(t.Context(), "k", most)
		wantErr(t, setting, err, lockcore.ErrAbandoned)
		ok(t, rdb.ConfigSet(t.Context(), setting, "0").Err())
	}
}
