package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	shortLease = 2 * time.Second // a busy machine may be late by a tenth of it
	longLease  = time.Minute     // needs no renewal during a check
	pollEvery  = 5 * time.Millisecond
)

var atOnce = lockcore.Terms{Wait: lockcore.NoWait, Lease: longLease}

// trial is one check that runs. Its ctx bounds all waits of the check.
type trial struct {
	testing.TB
	*suite
	ctx context.Context //nolint:containedctx // the deadline of the check
}

// locker returns a new Locker, which acts as another process.
func (t *trial) locker() *lockcore.Locker {
	t.Helper()
	return t.lockerOn(t.servers, t.masters)
}

func (t *trial) lockerOn(servers []redis.UniversalClient, masters []*redis.Client) *lockcore.Locker {
	t.Helper()
	locks, err := t.open(servers, masters)
	if err != nil {
		t.Fatal(err)
	}
	t.mu.Lock()
	t.lockers = append(t.lockers, access.Of(locks).ID)
	t.mu.Unlock()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*shortLease)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return locks
}

// network returns a Locker behind faults, or nil for both if the client cannot be copied.
func (t *trial) network() (*lockcore.Locker, *faulty.Network) {
	t.Helper()
	faults := faulty.New(t)
	var servers []redis.UniversalClient
	var masters []*redis.Client
	for _, one := range t.servers {
		rdb := behind(one, faults)
		if rdb == nil {
			return nil, nil
		}
		t.Cleanup(func() { _ = rdb.Close() }) // the Locker is closed before
		servers = append(servers, rdb)
		if c, is := rdb.(*redis.Client); is && t.masters != nil {
			masters = append(masters, c)
		}
	}
	return t.lockerOn(servers, masters), faults
}

// behind returns a client like rdb, with faults between it and the server. It returns nil if the
// dialer of rdb cannot be wrapped.
func behind(rdb redis.UniversalClient, faults *faulty.Network) redis.UniversalClient {
	// A live client writes to the configuration that its Options point to.
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch c := rdb.(type) {
	case *redis.Client:
		if c.Options().Addr == "FailoverClient" {
			return nil
		}
		o := *c.Options()
		o.Dialer, o.MaintNotificationsConfig, o.PushNotificationProcessor = faults.Dial(o.Dialer), off, nil
		return redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *c.Options()
		next := o.Dialer
		if next == nil {
			next = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer, o.MaintNotificationsConfig, o.PushNotificationProcessor = faults.Dial(next), off, nil
		return redis.NewClusterClient(&o)
	}
	return nil
}

func (t *trial) acquire(locks *lockcore.Locker, key string, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	return t.call(locks, key, testcall.Call{Terms: terms})
}

func (t *trial) call(locks *lockcore.Locker, key string, c testcall.Call) *lockcore.Lease {
	t.Helper()
	le, err := c.Acquire(t.ctx, locks, key)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return t.lease(le)
}

// claim claims a key that must not be done.
func (t *trial) claim(locks *lockcore.Locker, key string, c lockcore.Claim) *lockcore.Lease {
	t.Helper()
	return t.claimIn(t.ctx, locks, key, c)
}

// claimFixed is claim with a lease that is not renewed.
func (t *trial) claimFixed(locks *lockcore.Locker, key string, c lockcore.Claim) *lockcore.Lease {
	t.Helper()
	return t.claimIn(access.WithFixed(t.ctx), locks, key, c)
}

func (t *trial) claimIn(ctx context.Context, locks *lockcore.Locker, key string, c lockcore.Claim) *lockcore.Lease {
	t.Helper()
	if c.Terms == (lockcore.Terms{}) {
		c.Terms = atOnce
	}
	le, rec, err := locks.Claim(ctx, key, c)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if rec != nil {
		t.Fatalf("claim: a record of %d bytes, want to run", len(rec.Data))
	}
	return t.lease(le)
}

// lease releases le at the end of the check, if it is not released before.
func (t *trial) lease(le *lockcore.Lease) *lockcore.Lease {
	t.Cleanup(func() { _ = le.Release(context.Background()) }) // mostly released already
	return le
}

func (t *trial) release(le *lockcore.Lease) {
	t.Helper()
	if err := le.Release(t.ctx); err != nil {
		t.Errorf("release: %v", err)
	}
}

// busy fails unless key is busy.
func (t *trial) busy(locks *lockcore.Locker, key string) lockcore.BusyError {
	t.Helper()
	le, err := locks.Acquire(t.ctx, key, atOnce)
	if err == nil {
		_ = le.Release(t.ctx)
		t.Fatal("another call got the key too")
	}
	busy, ok := errors.AsType[*lockcore.BusyError](err)
	if !ok {
		t.Fatalf("want busy, got %v", err)
	}
	return *busy
}

func (t *trial) state(locks *lockcore.Locker, kind event.Kind, key string) lockcore.Holding {
	t.Helper()
	var h lockcore.Holding
	err := t.replied(func() (err error) {
		h, err = locks.Inspect(t.ctx, kind, key)
		return err
	})
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	return h
}

// replied repeats call, an operator call, at most twice if it gets no reply. Such a call sends one
// command and does not repeat it, so a pause of the machine would fail the check.
func (t *trial) replied(call func() error) error {
	var err error
	for range 3 {
		if err = call(); !errors.Is(err, lockcore.ErrUnavailable) {
			return err
		}
	}
	return err
}

func (t *trial) clear(locks *lockcore.Locker, kind event.Kind, key string) error {
	return t.replied(func() error { return locks.Clear(t.ctx, kind, key) })
}

// until polls until done returns true, for at most d and while the check may run. It polls once
// more after d, so that a pause of the machine does not fail the check.
func (t *trial) until(d time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(t.ctx, d)
	defer cancel()
	for {
		last := ctx.Err() != nil
		if done() {
			return true
		}
		if last {
			return false
		}
		select {
		case <-t.ctx.Done():
			return false
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// over waits for the end of a ctx and returns its cause.
func (t *trial) over(ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-t.ctx.Done():
		t.Fatal("the ctx of the lease is not canceled")
	}
	return context.Cause(ctx)
}

// pending is a call that waits for a key.
type pending struct {
	done chan struct{}
	// Set when done is closed.
	le      *lockcore.Lease
	err     error
	at      time.Time
	overlap bool // the ctx of the earlier holder had not ended
}

// wait begins to wait for a key that before holds.
func (t *trial) wait(locks *lockcore.Locker, key string, terms lockcore.Terms, before *lockcore.Lease) *pending {
	ctx, cancel := context.WithCancel(t.ctx)
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.le, p.err = locks.Acquire(ctx, key, terms)
		p.at, p.overlap = time.Now(), p.err == nil && before.Context().Err() == nil
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
		if p.err == nil {
			_ = p.le.Release(context.Background())
		}
	})
	return p
}

// lease waits for the result of the wait, and returns its lease, which ends with the check.
func (p *pending) lease(t *trial) *lockcore.Lease {
	t.Helper()
	<-p.done // the ctx of the check bounds this
	if p.err != nil {
		t.Fatalf("the waiter does not get the key: %v", p.err)
	}
	if p.overlap {
		t.Error("another call has the key, and the ctx of its holder has not ended")
	}
	return p.le
}

// inLine waits until a process is in the wait queue of key in Redis.
func (t *trial) inLine(locks *lockcore.Locker, key string) bool {
	t.Helper()
	return t.until(checkTime/4, func() bool { return t.state(locks, event.KindExclusive, key).Queue > 0 })
}
