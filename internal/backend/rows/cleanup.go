package rows

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/cleanup"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// cleaner sends the withdrawals and releases of the cleanup queue.
type cleaner struct{ *Backend }

// Send implements cleanup.Sender. The entries of a key are one write.
func (b cleaner) Send(ctx context.Context, batch []cleanup.Entry) []error {
	var all changes
	for _, e := range batch {
		if e.Withdraw != nil {
			all.add(e.Withdraw.Key, withdrawal(e.Withdraw))
		} else {
			all.add(e.Release.Key, release(e.Release, new(backend.ReleaseReply)))
		}
	}
	errs := make([]error, len(batch))
	for i, c := range b.applyChanges(ctx, b.ends, &all) {
		if errs[i] = c.err; c.err != nil && c.lost {
			errs[i] = &lostError{c.err}
		}
	}
	return errs
}

// withdrawal returns the rule of a withdrawal. A lost one of a once key would leave it abandoned.
func withdrawal(r *backend.WithdrawRequest) rule {
	return func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, notices = rules.Withdraw(*k, r, e)
		return notices, r.Key.Kind == backend.KindOnce
	}
}

// lostError is the error of a write that may have taken effect.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// After implements cleanup.Sender. Rights, a password or a missing table may be corrected, so only data
// that cannot be read ends the tries.
func (b cleaner) After(err error) cleanup.Fate {
	switch {
	case errors.As(err, new(*backend.DataError)):
		return cleanup.GiveUp
	case errors.As(err, new(*lostError)):
		return cleanup.MayTakeEffect
	case errors.Is(err, errBusy):
		return cleanup.Refused
	}
	return cleanup.TryAgain
}
