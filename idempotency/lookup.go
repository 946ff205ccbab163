package idempotency

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Entry is what is known of a once key.
type Entry struct {
	// Holding says in which state the key is, by whom, since when, which run it was, and how much longer that is remembered.
	lockcore.Holding
	// Record is what a done key remembers. Of other keys, and if what is stored does not decode, it is zero.
	Record Record
}

// Lookup says what is known of a once key: free, held, abandoned, or done and with which record. (lockcore.StateReserved is a key
// that an earlier run has given back and that is kept for the next in line, for half a second; lockcore.StateParked one that is kept
// for what is left of Terms.MinHold.) It runs nothing, changes nothing and
// costs one round trip. It does not say what becomes of the key in the next moment: to run what has not run, use guard.Once.
//
// A record that does not decode is an error that satisfies errors.Is with ErrRecord and with lockcore.ErrRecord, and the rest of the Entry is valid. Other errors
// are those of [lockcore.Locker.Inspect].
func Lookup(ctx context.Context, locks *lockcore.Locker, key string) (Entry, error) {
	h, stored, err := locks.Look(ctx, key)
	e := Entry{Holding: h}
	if err != nil || stored == nil {
		return e, err
	}
	if e.Record, err = Decode(stored.Data); err != nil {
		return e, fmt.Errorf("%w: %q: %w", lockcore.ErrRecord, key, err)
	}
	return e, nil
}

// Clear forgets that a once key is done, abandoned or parked, so that it runs again. It is for operators: what is forgotten may have had its
// effect. seen is what Lookup said of the key: if a run has begun or was completed since, so that what the operator knows is no longer
// true, nothing is forgotten, and the error satisfies lockcore.ErrChanged. A key that is free is no error. A key that is held is refused
// with one that satisfies lockcore.ErrBusy. Other errors are those of [lockcore.Locker.Inspect].
func Clear(ctx context.Context, locks *lockcore.Locker, key string, seen Entry) error {
	return locks.ClearSeen(ctx, lockcore.KindOnce, key, seen.Holding)
}
