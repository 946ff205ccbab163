package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var fixed = testcall.Call{Fixed: true}

// Revoke reaches a holder whose Locker has neither waited nor renewed a lease. A Locker with a
// lease older than a second has one subscription. Shorter holds send no command for it.
// Shows: L6, C1
func TestRevokeSoon(t *testing.T) {
	for name, terms := range map[string]testcall.Call{"renewed": {}, "fixed": fixed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, faults, count := w.Locker(lockcore.Options{})
				other, _, _ := w.Locker(lockcore.Options{})
				revoke := func(key string) time.Time {
					t.Helper()
					if err := other.Revoke(t.Context(), event.KindExclusive, key); err != nil {
						t.Fatal(err)
					}
					return time.Now()
				}
				ends := func(le *lockcore.Lease, revoked time.Time, bound time.Duration) {
					t.Helper()
					<-le.Context().Done()
					if d := time.Since(revoked); d > bound || !errors.Is(context.Cause(le.Context()), lockcore.ErrRevoked) {
						t.Errorf("canceled %v after Revoke: %v", d, context.Cause(le.Context()))
					}
					_ = le.Release(t.Context())
				}
				for range 100 { // there is always a lease, but never an old one
					le := w.Must(terms.Acquire(t.Context(), l, "short"))
					time.Sleep(900 * time.Millisecond)
					_ = le.Release(t.Context())
				}
				if n := count.Count("subscribe") + count.Count("renew"); n != 0 && terms.Fixed {
					t.Errorf("short holds sent %v", count.Commands())
				}
				young, old := w.Must(terms.Acquire(t.Context(), l, "young")), w.Must(terms.Acquire(t.Context(), l, "old"))
				time.Sleep(500 * time.Millisecond)
				ends(young, revoke("young"), 510*time.Millisecond) // the Locker is not subscribed yet
				time.Sleep(time.Second)
				ends(old, revoke("old"), time.Millisecond)
				if n := count.Count("subscribe"); n != 1 {
					t.Errorf("subscribed %d times", n)
				}
				le := w.Must(testcall.Call{Fixed: terms.Fixed, Terms: lockcore.Terms{Lease: time.Hour}}.Acquire(t.Context(), l, "k"))
				time.Sleep(20 * time.Minute) // much longer than an idle subscription stays open
				faults.Silence()
				time.Sleep(time.Second)
				revoked := revoke("k") // this notification is lost
				time.Sleep(time.Second)
				faults.Heal()
				faults.Cut()
				ends(le, revoked, 10*time.Second)
			})
		})
	}
}

// On a real server Revoke ends the ctx of a holder within 100 ms (p99), or within 20 times the time
// of a plain message. A control measures that time. Each lease has its own Locker, which has no
// other reason to subscribe.
// Shows: L6
func TestRevokeSoonReal(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	const trials = 200
	s := redistest.Real(t)
	rdb := s.Client(t)
	other, _ := counted(t, s, lockcore.Options{})
	sub := rdb.Subscribe(t.Context(), "control")
	defer func() { _ = sub.Close() }()
	messages := sub.Channel()
	leases := make([]*lockcore.Lease, trials)
	for i := range leases {
		l, err := lockcore.New(rdb, lockcore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		if leases[i], err = (testcall.Call{Fixed: i%2 == 1}).Acquire(t.Context(), l, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all Lockers are subscribed", func() bool { return subscriptions(t, rdb) == trials+1 })
	var took, control []time.Duration
	for i, le := range leases {
		start := time.Now()
		if err := rdb.Publish(t.Context(), "control", "x").Err(); err != nil {
			t.Fatal(err)
		}
		<-messages
		control = append(control, time.Since(start))
		start = time.Now()
		if err := other.Revoke(t.Context(), event.KindExclusive, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		<-le.Context().Done()
		took = append(took, time.Since(start))
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrRevoked) {
			t.Errorf("lease %d: %v", i, err)
		}
	}
	slices.Sort(took)
	slices.Sort(control)
	p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100] }
	t.Logf("Revoke to the cause of ctx: p50 %v, p99 %v; PUBLISH to SUBSCRIBE: p50 %v, p99 %v", took[trials/2], p99(took), control[trials/2], p99(control))
	if p99(took) > max(100*time.Millisecond, 20*p99(control)) {
		t.Errorf("p99 of Revoke %v, p99 of a plain message %v", p99(took), p99(control))
	}
}
