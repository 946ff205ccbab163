package rows

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// Inspect implements backend.Backend. It writes nothing.
func (b *Backend) Inspect(ctx context.Context, key *backend.Key, part backend.RecordPart) (s backend.Status, err error) {
	_, _, err = b.insist(ctx, b.calls, key, func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		_, s = rules.Inspect(*k, key.Kind, part, e)
		return nil, false
	})
	return s, err
}

// Revoke implements backend.Backend.
func (b *Backend) Revoke(ctx context.Context, r backend.RevokeRequest) (revoked bool, err error) {
	id := rand.Text()
	_, _, err = b.insist(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, revoked, notices = rules.Revoke(*k, &r, id, e)
		return notices, true
	})
	return revoked && err == nil, err
}

// Clear implements backend.Backend. A row that cannot be read is not a hold, because its holder cannot
// renew it.
func (b *Backend) Clear(ctx context.Context, r backend.ClearRequest) (reply backend.ClearReply, err error) {
	id := rand.Text()
	_, _, err = b.insist(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, reply, notices = rules.Clear(*k, &r, id, e)
		return notices, true
	})
	if r.Condition != backend.ClearIfSame && errors.As(err, new(*backend.DataError)) {
		return b.repair(ctx, r.Key)
	}
	return reply, err
}

// repair frees a row that cannot be read. It keeps the greatest token, which is that of the row or not
// greater than the time.
func (b *Backend) repair(ctx context.Context, key *backend.Key) (backend.ClearReply, error) {
	ctx, cancel := b.within(ctx, backend.CallTimeout)
	defer cancel()
	rows, err := b.read(ctx, b.calls, []*change{{key: key}})
	if err != nil {
		return backend.ClearHeld, err
	}
	row := &rows[0]
	if _, _, err := row.decode(key.Kind); err == nil {
		return backend.ClearChanged, nil
	}
	free := encode(key.Kind, &rules.Key{}, 0, row.Now)
	free.Token = max(row.Token, row.Now)
	err = b.closedOr(b.calls.Write(ctx, []Write{*write(key.Stored[0], row, free, true)})[0])
	if errors.Is(err, ErrConflict) {
		return backend.ClearChanged, nil
	}
	return backend.Cleared, err
}

// ForceClear implements backend.Backend.
func (b *Backend) ForceClear(ctx context.Context, r backend.ForceClearRequest) (reply backend.ForceClearReply, err error) {
	id := rand.Text()
	_, _, err = b.insist(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, reply, notices = rules.ForceClear(*k, &r, id, e)
		return notices, true
	})
	return reply, err
}

// Pause implements backend.Backend.
func (b *Backend) Pause(ctx context.Context, key *backend.Key, d time.Duration, reason string) error {
	id := rand.Text()
	_, _, err := b.insist(ctx, b.calls, key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, notices = rules.Pause(*k, key, d.Microseconds(), reason, id, e)
		return notices, true
	})
	return err
}

// Restrict implements backend.Backend.
func (b *Backend) Restrict(ctx context.Context, key *backend.Key, r backend.Restriction) error {
	id := rand.Text()
	_, _, err := b.insist(ctx, b.calls, key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, notices = rules.Restrict(*k, key, r, id, e)
		return notices, true
	})
	return err
}

// Park implements backend.Backend. A task whose entry is lost comes back after its own delay.
func (b *Backend) Park(ctx context.Context, r backend.ParkRequest) (reply backend.ParkReply, err error) {
	_, _, err = b.insist(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		*k, reply = rules.Park(*k, &r, e)
		return nil, false
	})
	return reply, err
}

// Unpark implements backend.Backend.
func (b *Backend) Unpark(ctx context.Context, r backend.UnparkRequest) (reply backend.UnparkReply, err error) {
	_, _, err = b.insist(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		*k, reply = rules.Unpark(*k, &r, e)
		return nil, false
	})
	return reply, err
}

// CallParkingLocker implements backend.Backend.
func (b *Backend) CallParkingLocker(ctx context.Context, key *backend.Key) (received int, err error) {
	_, _, err = b.insist(ctx, b.calls, key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, received, notices = rules.CallParkingLocker(*k, key, e)
		return notices, false
	})
	return received, err
}

// Order implements backend.Backend. A lost note is noted again with a number that grows as well.
func (b *Backend) Order(ctx context.Context, r backend.TriggerRequest) (reply backend.TriggerReply, err error) {
	_, _, err = b.insist(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		*k, reply = rules.Order(*k, &r, e)
		return nil, r.Op != backend.TriggerNote
	})
	return reply, err
}

// Permanent implements backend.Backend.
func (b *Backend) Permanent(err error) bool {
	return errors.As(err, new(*backend.DataError)) || errors.Is(err, backend.ErrClosed) || errors.Is(err, backend.ErrUnsupported) || b.calls.Permanent(err)
}

// Listen implements backend.Backend.
func (b *Backend) Listen(ctx context.Context, on func(backend.Notification)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.base, cancel)()
	b.calls.Listen(ctx, b.o.Locker, func(n backend.Notification) {
		on(n)
		if n.Event == backend.EventTurn {
			b.cleanups.Hurry(n.Request)
		}
	})
}
