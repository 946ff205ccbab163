package locktest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// records makes many calls of several processes claim a key at once, and one later.
func (t *trial) records() {
	const lockers, callers = 3, 4
	const calls = lockers * callers
	key, want := t.key("once"), bytes.Repeat([]byte("\x00\r\n%\xff"), 1000)
	running, problems := make(chan *lockcore.Lease, calls+1), make(chan error, calls+1)
	var replays atomic.Int64
	claim := func(locks *lockcore.Locker) {
		le, rec, err := locks.Claim(t.ctx, key, lockcore.Claim{Terms: lockcore.Terms{Wait: checkTime, Lease: longLease}})
		switch {
		case err != nil:
			problems <- err
		case rec == nil:
			running <- le
		case !bytes.Equal(rec.Data, want) || rec.Attempt != 1:
			problems <- fmt.Errorf("the record of attempt %d has %d bytes, and is not the one that was stored", rec.Attempt, len(rec.Data))
		default:
			replays.Add(1)
		}
	}
	later := t.locker()
	var wg sync.WaitGroup
	for range lockers {
		locks := t.locker()
		for range callers {
			wg.Go(func() { claim(locks) })
		}
	}
	select {
	case le := <-running:
		t.until(shortLease, func() bool { return t.state(later, event.KindOnce, key).Queue == lockers-1 })
		if err := le.Complete(t.ctx, want, time.Hour); err != nil {
			t.Errorf("complete: %v", err)
		}
	case <-t.ctx.Done():
	}
	wg.Wait()
	claim(later)
	close(running)
	for le := range running {
		_ = le.Release(t.ctx)
		t.Error("another call ran too")
	}
	close(problems)
	for err := range problems {
		t.Error(err)
	}
	if n := replays.Load(); n != calls {
		t.Errorf("%d calls have the record, want %d", n, calls)
	}
}

// keep stores a record for the shortest possible time.
func (t *trial) keep() {
	const keep = time.Second
	a, b, key := t.locker(), t.locker(), t.key("forgotten")
	begin := time.Now()
	t.complete(t.claim(a, key, lockcore.Claim{}), keep)
	ran := t.until(5*keep, func() bool {
		le, _, err := b.Claim(t.ctx, key, lockcore.Claim{Terms: atOnce})
		if err != nil {
			t.Fatal(err)
		}
		if le == nil {
			return false
		}
		t.release(le)
		return true
	})
	if took := time.Since(begin); !ran || took < keep*99/100 {
		t.Errorf("the record is kept for %v; after %v the key runs again: %v", keep, took, ran)
	}
}

func (t *trial) complete(le *lockcore.Lease, keep time.Duration) {
	t.Helper()
	if err := le.Complete(t.ctx, []byte("record"), keep); err != nil {
		t.Errorf("complete: %v", err)
	}
}

// failure ends a run without a record.
func (t *trial) failure() {
	a, b, key := t.locker(), t.locker(), t.key("failed")
	t.release(t.claim(a, key, lockcore.Claim{}))
	again := t.claim(b, key, lockcore.Claim{})
	if again.Attempt() != 2 || again.Abandoned() {
		t.Errorf("after a failed run it is attempt %d, abandoned %v; want 2, false", again.Attempt(), again.Abandoned())
	}
	t.complete(again, time.Hour)
	var h lockcore.Holding
	err := t.replied(func() (err error) {
		h, err = a.Inspect(t.ctx, event.KindOnce, key)
		return err
	})
	if err != nil || h.Record == nil || h.State != lockcore.StateDone || h.KeepLeft > time.Hour {
		t.Errorf("a done key is reported as %+v, error %v", h, err)
	}
}

// fingerprint claims a key with another payload while it runs and when it is done.
func (t *trial) fingerprint() {
	a, b, key := t.locker(), t.locker(), t.key("fingerprint")
	mine := lockcore.Claim{Terms: atOnce, Fingerprint: []byte("mine")}
	other := lockcore.Claim{Terms: atOnce, Fingerprint: []byte("other")}
	running := t.claim(a, key, mine)
	refused := func(done bool) {
		t.Helper()
		_, _, err := b.Claim(t.ctx, key, other)
		if e, ok := errors.AsType[*lockcore.MismatchError](err); !ok || e.Done != done {
			t.Errorf("another fingerprint: %v, want a mismatch, done %v", err, done)
		}
	}
	refused(false)
	t.complete(running, time.Hour)
	refused(true)
	if _, rec, err := b.Claim(t.ctx, key, mine); err != nil || rec == nil {
		t.Errorf("the same fingerprint: record %v, error %v", rec, err)
	}
}

// abandoned leaves one key abandoned by a lease that expires, and one by Abandon.
func (t *trial) abandoned() {
	a, b := t.locker(), t.locker()
	dead, left := t.key("run-out"), t.key("abandoned")
	ranOut := t.claimFixed(a, dead, lockcore.Claim{Terms: lockcore.Terms{Lease: time.Second}})
	if err := t.claim(a, left, lockcore.Claim{}).Abandon(t.ctx); err != nil {
		t.Error(err)
	}
	if err := t.over(ranOut.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("the ctx ended with %v, want lost", err)
	}
	state := func() lockcore.State { return t.state(b, event.KindOnce, dead).State }
	if !t.until(shortLease, func() bool { return state() == lockcore.StateAbandoned }) {
		t.Errorf("the lease has expired, and the key is %s, want abandoned", state())
	}
	for _, key := range []string{dead, left} {
		if _, _, err := b.Claim(t.ctx, key, lockcore.Claim{Terms: atOnce, AtMostOnce: true}); !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("at most once: %v, want abandoned", err)
		}
		over := t.claim(b, key, lockcore.Claim{})
		if !over.Abandoned() || over.Attempt() != 2 {
			t.Errorf("at least once: attempt %d, reports a takeover: %v; want 2, true", over.Attempt(), over.Abandoned())
		}
		if err := over.Abandon(t.ctx); err != nil {
			t.Error(err)
		}
		if err := t.clear(b, event.KindOnce, key); err != nil {
			t.Error(err)
		}
		t.release(t.claim(a, key, lockcore.Claim{Terms: atOnce, AtMostOnce: true}))
	}
}

// hasTTL fails for a key of either kind without a TTL. It returns the number of keys found.
func (t *trial) hasTTL(key string) (found int) {
	t.Helper()
	for _, keys := range t.stored(key) {
		found += t.stayNot(keys)
	}
	return found
}

func (t *trial) stayNot(keys storedKeys) (found int) {
	t.Helper()
	left, err := t.ttls(t.ctx, keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, ms := range left {
		if ms == -1 {
			t.Errorf("%s has no TTL", keys[i%len(keys)])
		}
		if ms != -2 {
			found++
		}
	}
	return found
}

// allTTLs checks all keys that the earlier checks have left behind.
func (t *trial) allTTLs() {
	all, found := t.inRedis(), 0
	for _, keys := range all {
		found += t.stayNot(keys)
	}
	t.Logf("%d keys in Redis, of %d that were used", found, len(all))
	if len(all) > 0 && found == 0 {
		t.Error("inconclusive: no key is left of those that earlier checks released and recorded")
	}
}
