package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxKeys   = 16  // of ExclusiveAll and LimitedAll
	maxKeyLen = 512 // bytes, the limit of lockcore
)

// ExclusiveAll runs fn while it holds all keys: it is [Exclusive] for several keys at once. If it
// cannot acquire one of them, fn does not run. keys has 1 to 16 different keys in any order.
// Duplicates count once.
//
// ExclusiveAll nests calls of Exclusive. It acquires the keys one after the other in byte order,
// and waits for each in the wait queue of that key. So calls of ExclusiveAll do not deadlock, for
// any order of their keys. The keys may be in different slots of a Cluster. Each key costs the
// commands of one Exclusive, and has its own hold, events and fencing token, see [Token].
//
//   - t.Wait bounds the whole wait. Once it is over, each further key is tried once, as with
//     lockcore.NoWait.
//   - If a key is busy, the keys before it are released, and the error is the *lockcore.BusyError
//     of that key. Its Waited is the wait for that key. The event event.Released of the other
//     keys has that error as Failed.
//   - A key that ctx already holds is a nested call, see Exclusive. A call that holds a key and
//     needs a smaller one acquires them out of order. Two such calls can wait for each other until
//     t.Wait is over. Acquire the keys together, or always in byte order.
//   - MaxHold, MinHold and Stall of each key count from the grant of that key. So the first key has
//     the least of MaxHold left when fn begins. If fn does not run, MinHold does not apply to the
//     keys that are released.
//   - If the lease of any key ends early, the ctx of fn ends, and the error wraps the cause as that
//     of Exclusive does. If a lease ends before fn begins, the error also satisfies errors.Is(err,
//     lockcore.ErrNotRun).
//   - With [WithTicket] the call adopts the hold of one of its keys. If another key is busy, that
//     hold is released and the ticket is used up.
//
// Other errors are those of Exclusive. Invalid keys or terms are refused before any key is
// acquired.
func ExclusiveAll(ctx context.Context, locks *lockcore.Locker, keys []string, t lockcore.Terms, fn func(context.Context) error) error {
	sorted, bad := keySet(keys)
	return runAll(ctx, "ExclusiveAll", locks, sorted, bad, t, fn)
}

// runAll runs fn while it holds the keys of needs, which it acquires in that order: a share of each
// key with a Limit, and the others alone. bad has every problem of needs. name is the function that
// error texts name.
func runAll(ctx context.Context, name string, locks *lockcore.Locker, needs []KeyLimit, bad error, t lockcore.Terms, fn func(context.Context) error) error {
	if locks == nil || fn == nil {
		return errtext.Prefix("guard: "+name+": locks and fn must not be nil", lockcore.ErrNotRun)
	}
	if err := errtext.Join(bad, t.Validate()); err != nil {
		return errtext.Wrap(lockcore.ErrNotRun, err)
	}
	t.Wait = cmp.Or(t.Wait, locks.Terms().Wait)
	a := &all{name: name, locks: locks, terms: t, began: time.Now(), fn: fn}
	return a.run(ctx, needs)
}

// all is one call of ExclusiveAll or LimitedAll.
type all struct {
	name  string
	locks *lockcore.Locker
	terms lockcore.Terms
	began time.Time
	fn    func(context.Context) error
	ran   bool // fn was called
}

// run acquires the first of needs and calls itself for the others. Without needs it calls fn.
func (a *all) run(ctx context.Context, needs []KeyLimit) error {
	if len(needs) == 0 {
		if ctx.Err() != nil { // a lease ended while the call waited for the last key
			return errtext.Wrap(lockcore.ErrNotRun, context.Cause(ctx))
		}
		a.ran = true
		return a.fn(ctx)
	}
	if n := needs[0]; n.rateOnly() {
		t := a.rest()
		if _, err := a.locks.Throttle(ctx, n.Key, n.Limit.Rate, lockcore.ThrottleOptions{Name: t.Name, Wait: t.Wait, MaxWaiting: t.MaxWaiting}); err != nil {
			return err
		}
		return a.run(ctx, needs[1:])
	}
	return runHolding(ctx, a.name, a.locks, needs[0].Key, needs[0].Limit, a.rest(), func(ctx context.Context) error {
		defer func() { // also if an Observer panics
			if !a.ran { //planted:all-not-cooling
				access.SkipMinHold(ctx)
			}
		}()
		return a.run(ctx, needs[1:])
	})
}

// rest returns the terms of the next key. Their Wait is the time left of the Wait of the call.
func (a *all) rest() lockcore.Terms {
	t := a.terms
	if t.Wait == lockcore.NoWait || t.Wait == lockcore.Forever {
		return t
	}
	if t.Wait -= time.Since(a.began); t.Wait <= 0 { //planted:all-wait
		t.Wait = lockcore.NoWait
	}
	return t
}

// keySet returns the different keys in byte order, and an error with every problem of keys.
func keySet(keys []string) (sorted []KeyLimit, err error) {
	var errs []error
	for i, key := range keys {
		errs = append(errs, checkKey(fmt.Sprintf("keys[%d]", i), key))
	}
	different := slices.Clone(keys)
	slices.Sort(different) //planted:all-in-order
	for _, key := range slices.Compact(different) {
		sorted = append(sorted, KeyLimit{Key: key})
	}
	return sorted, errtext.Join(append(errs, checkCount("ExclusiveAll: keys", len(sorted)))...)
}

func checkKey(field, key string) error {
	if len(key) == 0 || len(key) > maxKeyLen {
		return errtext.Wrap(lockcore.ErrKey, fmt.Errorf("%s is %d bytes long, must be between 1 and %d bytes", field, len(key), maxKeyLen))
	}
	return nil
}

func checkCount(list string, n int) error {
	if n < 1 || n > maxKeys {
		return fmt.Errorf("guard: %s has %d different keys, must have between 1 and %d", list, n, maxKeys)
	}
	return nil
}
