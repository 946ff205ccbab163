package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Hold describes a hold that a ctx carries.
type Hold struct {
	Key       string
	Token     int64     // see [Token]
	GrantedAt time.Time // when it began, by the clock of Redis
	Attempt   int       // see [Attempt]
	TookOver  bool      // see [Attempt]
	grant     *string   // a pointer, because the id is the secret of a ticket, and fmt must not print it
}

// ID returns 32 hexadecimal digits that name the hold. All calls under the hold, including nested
// ones, have the same ID. All shares of a key that are held at the same time have the same ID and
// fencing token. No other hold has that ID.
//
// A resource that stores the ID with the token can distinguish two holds with equal tokens. A
// failover that loses a grant can cause equal tokens; see package fence. The ID is a digest and
// gives no right to the key.
func (h Hold) ID() string { return access.Hold{Token: h.Token, Grant: h.grant}.ID() }

// Current returns the innermost hold that ctx carries, of any Locker and kind of key. ok is false
// if ctx carries no hold that is valid now. A hold that was released or lost is not valid.
func Current(ctx context.Context) (h Hold, ok bool) {
	c, ok := access.Current(ctx)
	if !ok {
		return Hold{}, false
	}
	return Hold{Key: c.Key, Token: c.Token, GrantedAt: c.GrantedAt, Attempt: c.Attempt, TookOver: c.TookOver, grant: c.Grant}, true
}

// Token returns the fencing token under which ctx holds key, and reports whether ctx holds key. The
// token grows with every hold of the key, not with a renewal or a nested call. It is about 1.8e15
// today, so store it as a 64-bit integer. It protects only a resource that rejects smaller tokens,
// see package fence (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
func Token(ctx context.Context, key string) (int64, bool) {
	h, ok := access.HoldOf(ctx, key)
	return h.Token, ok
}

// Attempt returns the number of this run of key under [Once], from 1, and reports whether the run
// takes over an abandoned run. After a takeover the work may be half done. The number is 1 under
// [Exclusive], and 0 if ctx does not hold key.
func Attempt(ctx context.Context, key string) (attempt int, tookOver bool) {
	h, _ := access.HoldOf(ctx, key)
	return h.Attempt, h.TookOver
}

// Beat reports that the handler of ctx makes progress, so that Terms.Stall does not end its hold.
// It sends no command. Without Stall, and for a ctx that holds nothing, it does nothing.
func Beat(ctx context.Context) { lockcore.Beat(ctx) }

// MustHold panics unless ctx holds key, alone or as a share, and the lease is valid. Use it in code
// that must never run unguarded. It corresponds to ShedLock's LockAssert.
func MustHold(ctx context.Context, key string) {
	if _, ok := access.HoldOf(ctx, key); !ok {
		panic(fmt.Sprintf("guard: ctx does not hold %q", key))
	}
}

// Detach returns a ctx for work that outlives the handler. It has the values of ctx without its
// holds, cancellation and deadline. The work must acquire its own keys.
func Detach(ctx context.Context) context.Context { return lockcore.Detach(ctx) }
