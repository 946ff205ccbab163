package guard

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Token returns the fencing number under which ctx holds key, and whether it holds it. It grows with every hold of the
// key and never with renewal or re-entry; about 1.8e15 today, so store it as a 64-bit integer. A token that the resource does not check protects nothing: pass it along and let
// the resource refuse smaller ones (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
func Token(ctx context.Context, key string) (int64, bool) { return lockcore.TokenOf(ctx, key) }

// Attempt tells a handler under [Once] which run of key this is, from 1, and whether it takes over from a holder that never
// said how its run ended, so that the work may be half done. It is 0 if ctx does not hold key; under Exclusive it is 1.
func Attempt(ctx context.Context, key string) (attempt int, tookOver bool) {
	return lockcore.AttemptOf(ctx, key)
}

// Beat says that the handler of ctx makes headway, so that Terms.Stall does not end its hold. It costs no command; call it as often as
// you like. Without Stall, and on a ctx that holds nothing, it does nothing.
func Beat(ctx context.Context) { lockcore.Beat(ctx) }

// MustHold panics unless ctx holds key and the lease is valid. It is for code that must never run unguarded, as
// ShedLock's LockAssert is.
func MustHold(ctx context.Context, key string) {
	if _, ok := lockcore.TokenOf(ctx, key); !ok {
		panic(fmt.Sprintf("guard: ctx does not hold %q", key))
	}
}

// Detach returns a ctx for work that outlives the handler: it has ctx's values, but neither its holds, nor its
// cancellation, nor its deadline. What it guards must be acquired anew.
func Detach(ctx context.Context) context.Context { return lockcore.Detach(ctx) }
