package idempotency

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Status is the state of a once key and the content of its record.
type Status struct {
	// Holding has the state of the key, its holder, the start and number of its run, and how long
	// these are still remembered.
	lockcore.Holding
	// Content is the content of the record of a done key. It is zero for other keys, and for a
	// record that does not decode.
	Content Content
}

// Lookup returns the status of a once key: free, held, reserved, cooling, abandoned, or done with a
// record. It changes nothing and costs one round trip. The key may change at any time after the
// reply. So do not use Lookup to decide whether to run the work: guard.Once does that.
//
// For a record that does not decode the error satisfies errors.Is with ErrFormat and with
// lockcore.ErrRecord, and the rest of the Status is valid. Other errors come from
// [lockcore.Locker.Inspect].
func Lookup(ctx context.Context, locks *lockcore.Locker, key string) (Status, error) {
	h, err := locks.Inspect(ctx, event.KindOnce, key)
	e := Status{Holding: h}
	if err != nil || h.Record == nil {
		return e, err
	}
	if e.Content, err = Decode(h.Record.Data); err != nil {
		return e, fmt.Errorf("%w: %q: %w", lockcore.ErrRecord, key, err)
	}
	return e, nil
}

// Clear makes a once key that is done, abandoned or cooling free, so that it runs again. It is for
// operators, because the earlier run may have had its effect. seen is the result of Lookup.
//
//   - If a run has begun or ended since that Lookup, Clear changes nothing. The error satisfies
//     lockcore.ErrChanged.
//   - For a held key the error satisfies lockcore.ErrBusy.
//   - For a free key Clear returns nil.
//
// Other errors come from [lockcore.Locker.Inspect].
func Clear(ctx context.Context, locks *lockcore.Locker, key string, seen Status) error {
	return locks.ClearIfUnchanged(ctx, event.KindOnce, key, seen.Holding)
}
