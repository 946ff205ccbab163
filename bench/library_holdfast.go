package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	mnoop "go.opentelemetry.io/otel/metric/noop" //nolint:depguard // the scenario observer measures it
	tnoop "go.opentelemetry.io/otel/trace/noop"  //nolint:depguard // the scenario observer measures it

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing" //nolint:depguard // the scenario observer measures it
)

type holdfastLocker struct {
	locks *lockcore.Locker
	terms lockcore.Terms
}

func openHoldfast(s setup) (locker, error) {
	if s.passes != nil {
		return newHoldfast(s, lockcore.Options{Observer: s.passes})
	}
	return newHoldfast(s, lockcore.Options{})
}

func openUnbatched(s setup) (locker, error) {
	return newHoldfast(s, lockcore.Options{NoGroups: true})
}

func openTraced(s setup) (locker, error) {
	obs, err := tracing.New(tracing.Options{TracerProvider: tnoop.NewTracerProvider(), MeterProvider: mnoop.NewMeterProvider()})
	if err != nil {
		return nil, err
	}
	return newHoldfast(s, lockcore.Options{Observer: obs})
}

func newHoldfast(s setup, o lockcore.Options) (*holdfastLocker, error) {
	locks, err := lockcore.New(newClient(s), o)
	if err != nil {
		return nil, err
	}
	return &holdfastLocker{locks, lockcore.Terms{Wait: lockcore.Forever, Lease: s.lease, Limit: s.limit}}, nil
}

func openShare(s setup) (locker, error) {
	s.limit = limit
	return openHoldfast(s)
}

// hashLocker adds the id of an ended request to each key before its first lock, so that every hold
// of the key is a hash.
type hashLocker struct {
	*holdfastLocker
	rdb  redis.UniversalClient
	mu   sync.Mutex
	done map[string]bool
}

func openHash(s setup) (locker, error) {
	l, err := newHoldfast(s, lockcore.Options{})
	if err != nil {
		return nil, err
	}
	return &hashLocker{holdfastLocker: l, rdb: newClient(s), done: map[string]bool{}}, nil
}

func (l *hashLocker) lock(ctx context.Context, key string) (held, error) {
	l.mu.Lock()
	ready := l.done[key]
	l.mu.Unlock()
	if !ready {
		if err := l.remember(ctx, key); err != nil {
			return nil, err
		}
	}
	return l.holdfastLocker.lock(ctx, key)
}

// remember finds the stored name of a held key in Redis, and adds the id of an ended request.
func (l *hashLocker) remember(ctx context.Context, key string) error {
	h, err := l.holdfastLocker.lock(ctx, key)
	if err != nil {
		return err
	}
	names, err := l.rdb.Keys(ctx, "*{"+key+"}").Result()
	if err2 := h.unlock(ctx); err != nil || err2 != nil {
		return errors.Join(err, err2)
	}
	if len(names) != 1 {
		return fmt.Errorf("bench: %d names of %s in Redis", len(names), key)
	}
	if err := l.rdb.HSet(ctx, names[0], "l", strings.Repeat("A", 26)).Err(); err != nil {
		return err
	}
	l.mu.Lock()
	l.done[key] = true
	l.mu.Unlock()
	return nil
}

func (l *holdfastLocker) lock(ctx context.Context, key string) (held, error) {
	lease, err := l.locks.Acquire(ctx, key, l.terms)
	if err != nil {
		return nil, err
	}
	return holdfastHeld{lease}, nil
}

type holdfastHeld struct{ lease *lockcore.Lease }

func (h holdfastHeld) unlock(ctx context.Context) error { return h.lease.Release(ctx) }

// passes is an Observer that records the longest pass of renewals and the number of lost leases.
type passes struct {
	mu      sync.Mutex
	longest time.Duration
	renewed int
	lost    int
}

// Start implements lockcore.Observer.
func (p *passes) Start(ctx context.Context, _ lockcore.Acquisition) context.Context { return ctx }

// Traceparent implements lockcore.Observer.
func (p *passes) Traceparent(context.Context) string { return "" }

// Event implements lockcore.Observer. The batches of a pass run at the same time, so the longest
// batch is the duration of the pass.
func (p *passes) Event(_ context.Context, e lockcore.Event) {
	switch e := e.(type) {
	case lockcore.RenewPass:
		p.mu.Lock()
		p.longest = max(p.longest, e.Took)
		p.renewed += e.Kept
		p.mu.Unlock()
	case lockcore.Lost:
		p.mu.Lock()
		p.lost++
		p.mu.Unlock()
	}
}

// seen returns the values that were recorded since its last call.
func (p *passes) seen() (longest time.Duration, renewed, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest, renewed, lost = p.longest, p.renewed, p.lost
	p.longest, p.renewed, p.lost = 0, 0, 0
	return longest, renewed, lost
}
