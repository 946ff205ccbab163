package quorum

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// unsupported is the error of an operation that needs one server.
func unsupported(what, instead string) error {
	return fmt.Errorf("%w on a majority of servers: %s: use %s", backend.ErrUnsupported, what, instead)
}

var (
	errRate     = unsupported("rates", "one Redis")
	errOnce     = unsupported("once keys", "one Redis, or package sqlonce")
	errTickets  = unsupported("tickets", "one Redis")
	errTriggers = unsupported("the order of triggers", "one Redis")
)

// collect asks all masters, and returns the replies, or an error if no majority replied. It waits for
// all of them, within the time limit of each.
func collect[T any](b *Backend, f func(Master) (T, error)) ([]T, error) {
	var replies []T
	errs := make([]error, len(b.masters))
	ask(b, func(i int) (T, error) { return f(b.masters[i]) }, func(i int, reply T, err error) bool {
		if errs[i] = err; err == nil {
			replies = append(replies, reply)
		}
		return false
	})
	if len(replies) < b.majority {
		return nil, b.failure(errs)
	}
	return replies, nil
}

// Inspect returns the state of the key on a majority of the masters.
func (b *Backend) Inspect(ctx context.Context, key *backend.Key, record backend.RecordPart) (backend.Status, error) {
	replies, err := collect(b, func(m Master) (backend.Status, error) { return m.Inspect(ctx, key, record) })
	if err != nil {
		return backend.Status{}, err
	}
	return b.agreed(replies), nil
}

// agreed returns the status that a majority has. Without one the key is free: a majority can grant
// it. A process that waits is in the queue of the home only. A master whose grant came late or was
// withdrawn may have a greater token than the majority, so the token of a majority comes first.
func (b *Backend) agreed(all []backend.Status) (s backend.Status) {
	queue, best, waits := 0, 0, backend.Waits{}
	for i := range all {
		one := &all[i]
		waits = backend.Waits{Calls: max(waits.Calls, one.Waits.Calls), Oldest: max(waits.Oldest, one.Waits.Oldest)} //planted:quorum-waits-of-home
		queue = max(queue, one.Queue)
		same, equal := 0, 0 // masters with this state, and also with this token
		for k := range all {
			if all[k].State == one.State && all[k].Locker == one.Locker {
				if same++; all[k].Token == one.Token {
					equal++
				}
			}
		}
		if equal = min(equal, b.majority); same < b.majority || equal < b.majority && best == b.majority {
			continue
		}
		if best == 0 || equal > best || one.Token > s.Token || one.Token == s.Token && one.Remaining < s.Remaining {
			s, best = *one, equal
		}
	}
	if best == 0 {
		s = backend.Status{State: backend.StateFree}
	}
	s.Queue, s.Waits = queue, waits
	return s
}

// List yields the keys that a majority of the masters has. It keeps the names in memory, because the
// masters list them in different orders.
func (b *Backend) List(ctx context.Context, r backend.ListRequest) iter.Seq2[backend.ListEntry, error] {
	return func(yield func(backend.ListEntry, error) bool) {
		type id struct {
			kind backend.Kind
			name string
		}
		lists, err := collect(b, func(m Master) (map[id]backend.ListEntry, error) {
			found := map[id]backend.ListEntry{}
			for e, err := range m.List(ctx, r) {
				if err != nil {
					return nil, err
				}
				found[id{e.Kind, e.Name}] = e
			}
			return found, nil
		})
		if err != nil {
			yield(backend.ListEntry{}, err)
			return
		}
		seen := map[id][]backend.Status{}
		for _, found := range lists {
			for key, e := range found {
				seen[key] = append(seen[key], e.Status)
			}
		}
		for key, all := range seen {
			s := b.agreed(all)
			if !r.Selects(&s) {
				continue
			}
			if !yield(backend.ListEntry{Kind: key.kind, Name: key.name, Status: s}, nil) {
				return
			}
		}
	}
}

// Revoke revokes the hold on a majority of the masters. With Before it is not supported: only the
// order of triggers needs it. With Seen, a minority that revoked it may be the masters that missed its
// release. Then it does not count if a majority has a newer hold.
func (b *Backend) Revoke(ctx context.Context, r backend.RevokeRequest) (revoked bool, err error) {
	if r.Before > 0 {
		return false, errTriggers
	}
	replies, err := collect(b, func(m Master) (bool, error) { return m.Revoke(ctx, r) })
	n := 0
	for _, one := range replies {
		if one {
			n++
		}
	}
	if err == nil && r.Seen > 0 && n > 0 && n < b.majority {
		s, err := b.Inspect(ctx, r.Key, backend.NoRecord)
		return err == nil && (s.State != backend.StateHeld || s.Token <= r.Seen), err
	}
	return n > 0, err
}

// Clear clears the key on a majority of the masters.
func (b *Backend) Clear(ctx context.Context, r backend.ClearRequest) (backend.ClearReply, error) {
	replies, err := collect(b, func(m Master) (backend.ClearReply, error) { return m.Clear(ctx, r) })
	if err != nil {
		return backend.ClearHeld, err
	}
	return b.cleared(replies), nil
}

// cleared returns Cleared if a majority has cleared the key, and otherwise why not.
func (b *Backend) cleared(replies []backend.ClearReply) backend.ClearReply {
	counts := map[backend.ClearReply]int{}
	for _, reply := range replies {
		counts[reply]++
	}
	switch {
	case counts[backend.Cleared] >= b.majority:
		return backend.Cleared
	case counts[backend.ClearHeld] > 0:
		return backend.ClearHeld
	}
	return backend.ClearChanged
}

// ForceClear ends the lease on a majority of the masters.
func (b *Backend) ForceClear(ctx context.Context, r backend.ForceClearRequest) (backend.ForceClearReply, error) {
	replies, err := collect(b, func(m Master) (backend.ForceClearReply, error) { return m.ForceClear(ctx, r) })
	if err != nil {
		return backend.ForceClearReply{}, err
	}
	var reply backend.ForceClearReply
	outcomes := make([]backend.ClearReply, len(replies))
	for i, one := range replies {
		outcomes[i], reply.Wait = one.Outcome, max(reply.Wait, one.Wait)
	}
	reply.Outcome = b.cleared(outcomes)
	return reply, nil
}

// Listen receives notifications from all masters until ctx ends. A subscription that has ended is
// made again.
func (b *Backend) Listen(ctx context.Context, on func(backend.Notification)) {
	var mu sync.Mutex // on is not called twice at a time
	one := func(n backend.Notification) {
		mu.Lock()
		defer mu.Unlock()
		on(n)
	}
	var wg sync.WaitGroup
	for _, m := range b.masters {
		wg.Go(func() {
			for ctx.Err() == nil {
				m.Listen(ctx, one)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	wg.Wait()
}

// NoTriggers returns why no triggers are ordered.
func (b *Backend) NoTriggers() error { return errTriggers }

// NoRecords returns why there are no once keys.
func (b *Backend) NoRecords() error { return errOnce }

// Complete, Adopt, Interim, Park, Unpark, Order and CallParkingLocker need one server.

// Complete is not supported: a record on a majority would be a replicated register.
func (b *Backend) Complete(context.Context, backend.CompleteRequest) (backend.ReleaseReply, error) {
	return backend.ReleaseReply{}, errOnce
}

// Adopt is not supported.
func (b *Backend) Adopt(context.Context, backend.AdoptRequest) (backend.AdoptReply, error) {
	return backend.AdoptReply{}, errTickets
}

// Interim is not supported.
func (b *Backend) Interim(context.Context, backend.InterimRequest) (bool, error) {
	return false, errTickets
}

// Park is not supported.
func (b *Backend) Park(context.Context, backend.ParkRequest) (backend.ParkReply, error) {
	return backend.ParkReply{}, unsupported("parking", "one Redis")
}

// Unpark is not supported.
func (b *Backend) Unpark(context.Context, backend.UnparkRequest) (backend.UnparkReply, error) {
	return backend.UnparkReply{}, unsupported("parking", "one Redis")
}

// Order is not supported.
func (b *Backend) Order(context.Context, backend.TriggerRequest) (backend.TriggerReply, error) {
	return backend.TriggerReply{}, errTriggers
}

// CallParkingLocker is not supported.
func (b *Backend) CallParkingLocker(context.Context, *backend.Key) (int, error) {
	return 0, unsupported("parking", "one Redis")
}

// Spend implements backend.Backend.
func (*Backend) Spend(context.Context, *backend.Key, backend.Rate) error { return errRate }

// Restrict is not supported.
func (*Backend) Restrict(context.Context, *backend.Key, backend.Restriction) error {
	return unsupported("restrictions", "one Redis")
}

// Pause implements backend.Backend.
func (b *Backend) Pause(ctx context.Context, key *backend.Key, d time.Duration, reason string) error {
	_, err := collect(b, func(m Master) (struct{}, error) { return struct{}{}, m.Pause(ctx, key, d, reason) })
	return err
}
