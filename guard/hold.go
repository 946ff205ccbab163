package guard

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Current returns the innermost hold that ctx carries. ok is false if ctx carries none that is
// valid now.
func Current(ctx context.Context) (h lockcore.Hold, ok bool) { return lockcore.Current(ctx) }

// Token returns the fencing token under which ctx holds key, and reports whether ctx holds key. The
// token grows with every hold of the key, not with a renewal or a nested call. It is about 1.8e15
// today, so store it as a 64-bit integer. It protects only a resource that rejects smaller tokens,
// see package fence (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
func Token(ctx context.Context, key string) (int64, bool) {
	h, ok := lockcore.HoldOf(ctx, key)
	return h.Token, ok
}

// Attempt returns the number of this run of key under [Once], from 1, and reports whether the run
// takes over an abandoned run. After a takeover the work may be half done. The number is 1 under
// [Exclusive], and 0 if ctx does not hold key.
func Attempt(ctx context.Context, key string) (attempt int, tookOver bool) {
	h, _ := lockcore.HoldOf(ctx, key)
	return h.Attempt, h.TookOver
}

// Beat reports that the handler of ctx makes progress, so that Terms.Stall does not end its hold.
// It sends no command. Without Stall, and for a ctx that holds nothing, it does nothing.
func Beat(ctx context.Context) { lockcore.Beat(ctx) }

// MustHold panics unless ctx holds key, alone or as a share, and the lease is valid. Use it in code
// that must never run unguarded. It corresponds to ShedLock's LockAssert.
func MustHold(ctx context.Context, key string) {
	if _, ok := lockcore.HoldOf(ctx, key); !ok {
		panic(fmt.Sprintf("guard: ctx does not hold %q", key))
	}
}

// Detach returns a ctx for work that outlives the handler. It has the values of ctx without its
// holds, cancellation and deadline. The work must acquire its own keys.
func Detach(ctx context.Context) context.Context { return lockcore.Detach(ctx) }
