// Package memory is a backend inside one process. Use it for development, for tests, and for
// services that run as a single instance. No other process sees its keys, and they end with the
// process.
//
// Package rules decides what each request does. This package stores the keys, bounds their memory,
// and delivers notifications.
package memory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// Options are the options of New.
type Options struct {
	backend.Options
	// Space stores the keys. Backends with the same Space exclude each other. Default: a new Space.
	Space *Space
	// MaxBytes bounds a new Space, see NewSpace. It must be 0 if Space is set.
	MaxBytes int64
}

// Backend gives one Locker access to a Space. Its commands take effect at once: no reply is lost,
// and no duplicate of a command arrives later.
type Backend struct {
	o      Options
	space  *Space
	closed chan struct{} // closed by Close

	// Guarded by space.mu.
	drained bool
	failed  int // number of withdrawals and releases after Drain or Close that are not reported
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend for the Locker of o.
func New(o Options) (*Backend, error) {
	if o.Space != nil && o.MaxBytes != 0 {
		return nil, errors.New("lockcore: MemoryOptions.MaxBytes is set together with Space, must be passed to NewSpace")
	}
	if o.Space == nil {
		s, err := NewSpace(o.MaxBytes)
		if err != nil {
			return nil, err
		}
		o.Space = s
	}
	return &Backend{o: o, space: o.Space, closed: make(chan struct{})}, nil
}

// Key implements backend.Backend.
func (b *Backend) Key(kind backend.Kind, name string) backend.Key {
	stored := prefix(kind) + name
	return backend.Key{Kind: kind, Name: name, Stored: [2]string{stored, stored + ":q"}}
}

func prefix(kind backend.Kind) string {
	if kind == backend.KindOnce {
		return "o:"
	}
	return "x:"
}

// Acquire implements backend.Backend. If the Space is full it returns an error.
func (b *Backend) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	sent := time.Now()
	if err := endOf(ctx); err != nil {
		return backend.AcquireReply{Sent: sent}, err
	}
	var reply backend.AcquireReply
	err := b.change(r.Key, true, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		k, reply, notices = rules.Acquire(k, &r, e)
		return k, notices
	})
	if err != nil {
		reply = backend.AcquireReply{}
	}
	reply.Sent, reply.Record = sent, slices.Clone(reply.Record)
	return reply, err
}

// Spend implements backend.Backend.
func (b *Backend) Spend(ctx context.Context, k *backend.Key, rate backend.Rate) error {
	if err := endOf(ctx); err != nil {
		return err
	}
	return b.change(k, true, func(data rules.Key, e rules.Env) (rules.Key, []rules.Notice) { return rules.Spend(data, rate, e), nil })
}

// Renew implements backend.Backend.
func (b *Backend) Renew(ctx context.Context, rs []backend.RenewRequest) []backend.RenewReply {
	replies := make([]backend.RenewReply, len(rs))
	for i := range rs {
		replies[i], _ = b.Extend(ctx, rs[i])
	}
	return replies
}

// Extend implements backend.Backend.
func (b *Backend) Extend(ctx context.Context, r backend.RenewRequest) (reply backend.RenewReply, sent time.Time) {
	sent = time.Now()
	if err := endOf(ctx); err != nil {
		return backend.RenewReply{Err: err}, sent
	}
	reply.Err = b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		k, reply.Verdict = rules.Renew(k, &r, e)
		return k, nil
	})
	return reply, sent
}

// Adopt implements backend.Backend.
func (b *Backend) Adopt(ctx context.Context, r backend.AdoptRequest) (reply backend.AdoptReply, err error) {
	sent := time.Now()
	if err := endOf(ctx); err != nil {
		return backend.AdoptReply{Sent: sent}, err
	}
	err = b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		k, reply = rules.Adopt(k, &r, e)
		return k, nil
	})
	reply.Sent = sent
	return reply, err
}

// Interim implements backend.Backend. If the Space is full it returns an error.
func (b *Backend) Interim(ctx context.Context, r backend.InterimRequest) (stored bool, err error) {
	if err := endOf(ctx); err != nil {
		return false, err
	}
	r.Answer = slices.Clone(r.Answer)
	err = b.change(r.Key, true, func(k rules.Key, e rules.Env) (next rules.Key, notices []rules.Notice) {
		next, stored, notices = rules.Interim(k, &r, e)
		return next, notices
	})
	return stored && err == nil, err
}

// Release implements backend.Backend.
func (b *Backend) Release(_ context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	sent := time.Now()
	var reply backend.ReleaseReply
	err := b.release(&r, &reply)
	reply.Next.Sent = sent
	return reply, err
}

func (b *Backend) release(r *backend.ReleaseRequest, reply *backend.ReleaseReply) error {
	cooldown := rules.Span(0)
	if !r.CoolUntil.IsZero() && !r.Abandon {
		cooldown = max(b.space.until(r.CoolUntil), 0).Microseconds()
	}
	return b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		k, *reply, notices = rules.Release(k, r, cooldown, e)
		return k, notices
	})
}

// Complete implements backend.Backend. If the Space is full it returns an error, and the hold
// continues.
func (b *Backend) Complete(_ context.Context, r backend.CompleteRequest) (backend.ReleaseReply, error) {
	r.Record = slices.Clone(r.Record)
	var reply backend.ReleaseReply
	err := b.change(r.Key, true, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		k, reply, notices = rules.Complete(k, &r, e)
		return k, notices
	})
	if err != nil {
		return backend.ReleaseReply{}, err
	}
	return reply, nil
}

// Withdraw implements backend.Backend. It takes effect at once.
func (b *Backend) Withdraw(r backend.WithdrawRequest) {
	b.cleanUp(func() error {
		return b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) { return rules.Withdraw(k, &r, e) })
	})
}

// Hurry implements backend.Backend. Each withdrawal is confirmed at once.
func (b *Backend) Hurry(string) {}

// ReleaseLater implements backend.Backend. It takes effect at once.
func (b *Backend) ReleaseLater(r backend.ReleaseRequest, _ time.Time) {
	b.cleanUp(func() error { return b.release(&r, new(backend.ReleaseReply)) })
}

// cleanUp runs a withdrawal or release. After Drain or Close it counts it as failed instead.
func (b *Backend) cleanUp(run func() error) {
	b.space.mu.Lock()
	drained := b.drained
	b.space.mu.Unlock()
	if !drained && run() == nil {
		return
	}
	b.space.mu.Lock()
	defer b.space.mu.Unlock()
	b.failed++
}

// Report implements backend.Backend.
func (b *Backend) Report() {
	b.space.mu.Lock()
	n := b.failed
	b.failed = 0
	b.space.mu.Unlock()
	if n > 0 && b.o.CleanupsFailed != nil {
		b.o.CleanupsFailed(n, backend.ErrClosed)
	}
}

// Inspect implements backend.Backend.
func (b *Backend) Inspect(ctx context.Context, k *backend.Key, part backend.RecordPart) (s backend.Status, err error) {
	if err := endOf(ctx); err != nil {
		return s, err
	}
	err = b.change(k, false, func(data rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		data, s = rules.Inspect(data, k.Kind, part, e)
		return data, nil
	})
	s.Record = slices.Clone(s.Record)
	return s, err
}

// Revoke implements backend.Backend.
func (b *Backend) Revoke(ctx context.Context, r backend.RevokeRequest) (revoked bool, err error) {
	if err := endOf(ctx); err != nil {
		return false, err
	}
	id := b.space.newID()
	err = b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		k, revoked, notices = rules.Revoke(k, &r, id, e)
		return k, notices
	})
	return revoked, err
}

// Pause implements backend.Backend.
func (b *Backend) Pause(ctx context.Context, k *backend.Key, d time.Duration, reason string) error {
	if err := endOf(ctx); err != nil {
		return err
	}
	id := b.space.newID()
	return b.change(k, d > 0, func(data rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		return rules.Pause(data, k, d.Microseconds(), reason, id, e)
	})
}

// Restrict implements backend.Backend.
func (b *Backend) Restrict(ctx context.Context, k *backend.Key, r backend.Restriction) error {
	if err := endOf(ctx); err != nil {
		return err
	}
	id := b.space.newID()
	return b.change(k, r.For > 0, func(data rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		return rules.Restrict(data, k, r, id, e)
	})
}

// Clear implements backend.Backend.
func (b *Backend) Clear(ctx context.Context, r backend.ClearRequest) (reply backend.ClearReply, err error) {
	if err := endOf(ctx); err != nil {
		return reply, err
	}
	id := b.space.newID()
	err = b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		k, reply, notices = rules.Clear(k, &r, id, e)
		return k, notices
	})
	return reply, err
}

// ForceClear implements backend.Backend.
func (b *Backend) ForceClear(ctx context.Context, r backend.ForceClearRequest) (reply backend.ForceClearReply, err error) {
	if err := endOf(ctx); err != nil {
		return reply, err
	}
	id := b.space.newID()
	err = b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		k, reply, notices = rules.ForceClear(k, &r, id, e)
		return k, notices
	})
	return reply, err
}

// Park implements backend.Backend. If the Space is full it returns an error.
func (b *Backend) Park(ctx context.Context, r backend.ParkRequest) (reply backend.ParkReply, err error) {
	if err := endOf(ctx); err != nil {
		return reply, err
	}
	err = b.change(r.Key, true, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		k, reply = rules.Park(k, &r, e)
		return k, nil
	})
	if err != nil {
		reply = backend.ParkReply{}
	}
	return reply, err
}

// Unpark implements backend.Backend.
func (b *Backend) Unpark(ctx context.Context, r backend.UnparkRequest) (reply backend.UnparkReply, err error) {
	if err := endOf(ctx); err != nil {
		return reply, err
	}
	err = b.change(r.Key, false, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		k, reply = rules.Unpark(k, &r, e)
		return k, nil
	})
	return reply, err
}

// Order implements backend.Backend. If the Space is full it returns an error.
func (b *Backend) Order(ctx context.Context, r backend.TriggerRequest) (reply backend.TriggerReply, err error) {
	if err := endOf(ctx); err != nil {
		return reply, err
	}
	err = b.change(r.Key, r.Op == backend.TriggerNote, func(k rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		k, reply = rules.Order(k, &r, e)
		return k, nil
	})
	if err != nil {
		reply = backend.TriggerReply{}
	}
	return reply, err
}

// CallParkingLocker implements backend.Backend.
func (b *Backend) CallParkingLocker(ctx context.Context, k *backend.Key) (received int, err error) {
	if err := endOf(ctx); err != nil {
		return 0, err
	}
	err = b.change(k, false, func(data rules.Key, e rules.Env) (rules.Key, []rules.Notice) {
		var notices []rules.Notice
		data, received, notices = rules.CallParkingLocker(data, k, e)
		return data, notices
	})
	return received, err
}

// Route implements backend.Backend. There is one server, so all names are empty.
func (b *Backend) Route(_ context.Context, keys []*backend.Key) []string {
	return make([]string, len(keys))
}

// Permanent implements backend.Backend. The error of a full Space is not permanent.
func (b *Backend) Permanent(err error) bool { return errors.Is(err, backend.ErrClosed) }

// Name implements backend.Backend.
func (b *Backend) Name() string { return "memory (this process only)" }

// Drain implements backend.Backend. It does not wait, because withdrawals and releases are
// confirmed at once.
func (b *Backend) Drain(context.Context) {
	b.space.mu.Lock()
	defer b.space.mu.Unlock()
	b.drained = true
}

// Close implements backend.Backend. The keys that the Locker holds stay in the Space until their
// leases expire.
func (b *Backend) Close() {
	b.space.mu.Lock()
	defer b.space.mu.Unlock()
	if !b.isClosed() {
		close(b.closed)
	}
}

func (b *Backend) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// endOf returns why ctx has ended, or nil. The timer of ctx may fire a moment after the deadline.
func endOf(ctx context.Context) error {
	if !backend.Ended(ctx) {
		return nil
	}
	return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
}
