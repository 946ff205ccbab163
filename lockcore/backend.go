package lockcore

import (
	"context"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
)

func init() { // see access.Of and access.New
	access.New = func(terms, observer any, open func(backend.Options) (backend.Backend, error)) (any, error) {
		t, _ := terms.(Terms)
		o, _ := observer.(event.Observer)
		l, err := newLocker(t, o, open)
		return l, translate(err)
	}
	access.Of = func(locks any) access.Locker {
		l, _ := locks.(*Locker)
		return access.Locker{
			Backend: l.backend, ID: l.id, Report: l.report, Subscribe: l.subscription.startFor, HandleParked: l.handleParked, Interim: l.interim,
			Order: l.order, Replace: l.replace, Holding: func(s *backend.Status) any { return holdingOf(s) }, Closing: l.closing, NoRecords: noRecords(l.backend), NoTriggers: noTriggers(l.backend),
		}
	}
}

// noRecords returns the error of each Claim, if b has no once keys.
func noRecords(b backend.Backend) error {
	if without, is := b.(interface{ NoRecords() error }); is {
		return translate(without.NoRecords())
	}
	return nil
}

// noTriggers returns the error of each order, if b orders no triggers.
func noTriggers(b backend.Backend) error {
	if without, is := b.(interface{ NoTriggers() error }); is {
		return translate(without.NoTriggers())
	}
	return nil
}

// order orders the triggers of an exclusive key, see backend.TriggerRequest.
func (l *Locker) order(ctx context.Context, key string, r backend.TriggerRequest) (backend.TriggerReply, error) {
	k, err := l.operatorKey(ctx, event.KindExclusive, key)
	if err != nil {
		return backend.TriggerReply{}, err
	}
	r.Key, r.Keep, r.Most = &k, refusedTTL, maxTriggers
	reply, err := l.backend.Order(ctx, r)
	if err != nil {
		return backend.TriggerReply{}, unavailable(err)
	}
	return reply, nil
}

const maxTriggers = 10_000 // of a key

// replace ends the hold of an exclusive key with ErrReplaced if its token is smaller than before.
func (l *Locker) replace(ctx context.Context, key string, before int64) error {
	k, err := l.operatorKey(ctx, event.KindExclusive, key)
	if err != nil {
		return err
	}
	if _, err := l.backend.Revoke(ctx, backend.RevokeRequest{Key: &k, Before: before}); err != nil {
		return unavailable(err)
	}
	return nil
}
