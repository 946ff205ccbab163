//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// Records are replayed to other processes, and what a dead process has begun is taken over, or not.
// Shows: I10, O5
func TestOnce(t *testing.T) {
	pool := database(t)
	a, b := locker(t, pool, postgres.Options{}), locker(t, pool, postgres.Options{})
	once := func(l *lockcore.Locker, key string, o guard.OnceOptions) (guard.Result[string], error) {
		return guard.OnceValue(t.Context(), l, key, o, func(context.Context) (string, error) { return "of " + l.ID(), nil })
	}
	die := func(key string) {
		t.Helper()
		lease, _, err := a.Claim(t.Context(), key, lockcore.Claim{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lease.Release(context.Background()) })                            // Close waits for it
		run(t, pool, `UPDATE holdfast_keys SET lease_end = 1 WHERE name = $1`, []byte("o:"+key)) // as if its lease had ended
	}
	die("again")
	die("unknown")
	for _, step := range []struct {
		l       *lockcore.Locker
		key     string
		mode    guard.Mode
		outcome guard.Outcome
		by      *lockcore.Locker
		err     error
	}{
		{a, "new", guard.AtLeastOnce, guard.Ran, a, nil},
		{b, "new", guard.AtLeastOnce, guard.Replayed, a, nil},
		{b, "again", guard.AtLeastOnce, guard.TookOver, b, nil},
		{a, "again", guard.AtLeastOnce, guard.Replayed, b, nil},
		{b, "unknown", guard.AtMostOnce, guard.NotRun, nil, lockcore.ErrAbandoned},
	} {
		r, err := once(step.l, step.key, guard.OnceOptions{Mode: step.mode})
		if !errors.Is(err, step.err) || r.Outcome != step.outcome || step.by != nil && r.Value != "of "+step.by.ID() {
			t.Errorf("%s: %+v, %v, want %v of %v and error %v", step.key, r, err, step.outcome, step.by, step.err)
		}
	}
}

// A hold that one Locker begins goes on in another one.
func TestTicket(t *testing.T) {
	pool := database(t)
	a, b := locker(t, pool, postgres.Options{}), locker(t, pool, postgres.Options{})
	lease, err := a.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := lease.Ticket(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(t.Context())
	if _, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("a transferred key: %v, want ErrBusy", err)
	}
	adopted, err := b.Adopt(t.Context(), ticket, lockcore.Terms{})
	if err != nil || adopted.Token() <= lease.Token() {
		t.Fatalf("Adopt returns token %d after %d, %v", adopted.Token(), lease.Token(), err)
	}
	if err := adopted.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Shares of several Lockers fit the limit, and the next one waits for a release.
// Shows: I1
func TestShares(t *testing.T) {
	pool := database(t)
	var all [3]*lockcore.Locker
	var leases [3]*lockcore.Lease
	limit := lockcore.Limit{N: 2}
	for i := range all {
		all[i] = locker(t, pool, postgres.Options{})
		var err error
		if leases[i], err = all[i].AcquireShare(t.Context(), "k", limit, lockcore.Terms{Wait: lockcore.NoWait}); errors.Is(err, lockcore.ErrBusy) != (i == 2) {
			t.Fatalf("share %d: %v", i, err)
		}
	}
	got := make(chan error, 1)
	go func() {
		lease, err := all[2].AcquireShare(t.Context(), "k", limit, lockcore.Terms{Wait: time.Minute})
		if err == nil {
			err = lease.Release(t.Context())
		}
		got <- err
	}()
	for queue := 0; queue == 0; time.Sleep(5 * time.Millisecond) {
		h, err := all[0].Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil {
			t.Fatal(err)
		}
		queue = h.Queue
	}
	for i, lease := range leases[:2] {
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if i == 0 {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
	}
}

// Another process pauses a key, and revokes its hold.
// Shows: L5
func TestOperators(t *testing.T) {
	pool := database(t)
	a, b := locker(t, pool, postgres.Options{}), locker(t, pool, postgres.Options{})
	lease, err := a.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Revoke(t.Context(), event.KindExclusive, "k"); err != nil {
		t.Fatal(err)
	}
	if <-lease.Context().Done(); !errors.Is(context.Cause(lease.Context()), lockcore.ErrRevoked) {
		t.Errorf("the ctx of a revoked hold ends with %v", context.Cause(lease.Context()))
	}
	_ = lease.Release(t.Context())
	if err := b.Pause(t.Context(), "k", time.Hour, "a test"); err != nil {
		t.Fatal(err)
	}
	var busy *lockcore.BusyError
	if _, err := a.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); !errors.As(err, &busy) || busy.PauseReason != "a test" {
		t.Errorf("a paused key: %v", err)
	}
	if err := b.Pause(t.Context(), "k", 0, ""); err != nil {
		t.Fatal(err)
	}
	if lease, err = a.Acquire(t.Context(), "k", lockcore.Terms{}); err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(t.Context())
}

// A release tells the Locker that has parked tasks of the key, and it wakes them.
func TestParking(t *testing.T) {
	pool := database(t)
	a, b := locker(t, pool, postgres.Options{}), locker(t, pool, postgres.Options{})
	lease, err := b.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	parking := access.Of(a)
	free := make(chan backend.Key, 10)
	parking.HandleParked(func(k backend.Key, state access.Parked) {
		if state != access.ParkedHeld {
			free <- k
		}
	})
	parking.Subscribe(time.Minute)
	until(t, pool, `SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'holdfast `+a.ID()+`'`)
	key := parking.Backend.Key(backend.KindExclusive, "k")
	park(t, parking.Backend, &key)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k := <-free; k.Name != "k" {
		t.Errorf("told of %q", k.Name)
	}
	woken, err := parking.Backend.Unpark(t.Context(), backend.UnparkRequest{Key: &key, Woken: 1, Prefix: "queue/"})
	if err != nil || len(woken.Wake) != 1 || woken.Wake[0] != "queue/task" {
		t.Errorf("Unpark returns %+v, %v", woken, err)
	}
	done, err := parking.Backend.Unpark(t.Context(), backend.UnparkRequest{Key: &key, Remove: woken.Wake})
	if err != nil || done.Removed != 1 || done.Count != 0 {
		t.Errorf("Unpark returns %+v, %v", done, err)
	}
}
