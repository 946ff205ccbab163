// Package access gives the packages of this module the part of a lockcore.Locker that is hidden
// from users.
package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// MaxFingerprint is the longest fingerprint of a lockcore.Claim, in bytes.
const MaxFingerprint = 64

// Of returns the hidden part of a *lockcore.Locker. Package lockcore sets it when it is initialized,
// so that its users see no method of that kind.
var Of func(locks any) Locker

// New returns a *lockcore.Locker on the backend that open returns. terms are lockcore.Terms that were
// validated, observer is an event.Observer or nil. Package lockcore sets it, like Of. A module for
// another kind of server uses it.
var New func(terms, observer any, open func(backend.Options) (backend.Backend, error)) (any, error)

// Locker is the hidden part of a lockcore.Locker.
type Locker struct {
	Backend backend.Backend
	ID      string // as in event.Holder.Locker
	// Report passes an event.Event to the Observer, if there is one. A panic of the Observer
	// reaches the caller.
	Report func(ctx context.Context, event any)
	// Subscribe keeps the subscription of the Locker open for at least d and a minute.
	Subscribe func(d time.Duration)
	// HandleParked adds handle, a function that wakes parked tasks. handle is called when a reply
	// or a notification says that a key may have parked entries. It must not block. HandleParked
	// returns a ctx that ends with the Locker: when Close has no holds left, or stops waiting for
	// them.
	HandleParked func(handle func(backend.Key, Parked)) context.Context
	// Interim stores an interim answer of a once key. ctx carries the hold, which Ticket has ended. A call with WithInterim gets the answer until the run ends.
	Interim func(ctx context.Context, key string, answer []byte) error
	// Order orders the triggers of an exclusive key, with the errors of lockcore. It sets r.Key.
	Order func(ctx context.Context, key string, r backend.TriggerRequest) (backend.TriggerReply, error)
	// Replace ends the hold of an exclusive key with lockcore.ErrReplaced if its token is smaller
	// than before.
	Replace func(ctx context.Context, key string, before int64) error
	// Holding returns the status of a key as a lockcore.Holding, without its record.
	Holding func(*backend.Status) any
	// Closing is closed when Close begins.
	Closing <-chan struct{}
	// NoRecords is the error of each Claim if the backend has no once keys, and NoTriggers that of
	// each Order if it orders no triggers.
	NoRecords, NoTriggers error
}

// HoldKey is the key of the value of a ctx that carries a hold.
type HoldKey struct{}

// carried is implemented by that value. A nil value carries no hold.
type carried interface {
	Current() (Hold, bool)
	HoldOf(key string) (Hold, bool)
	TicketOf(key string) func(ctx context.Context, d time.Duration) (string, error) // nil: no hold of key
	SkipMinHold()
	BeforeWork() bool
}

// Hold describes a hold that a ctx carries, see guard.Hold.
type Hold struct {
	Key       string
	Token     int64
	GrantedAt time.Time
	Attempt   int
	TookOver  bool
	Grant     *string // id: a pointer, because the id is the secret of a ticket, and fmt must not print it
}

// ID is guard.Hold.ID.
func (h Hold) ID() string {
	if h.Grant == nil {
		return ""
	}
	// The holds of a batch have the id of their grant in common, but differ in their tokens.
	sum := sha256.Sum256([]byte("hold\n" + *h.Grant + "\n" + strconv.FormatInt(h.Token, 10)))
	return hex.EncodeToString(sum[:16])
}

// Current is guard.Current.
func Current(ctx context.Context) (h Hold, ok bool) {
	if c, carries := ctx.Value(HoldKey{}).(carried); carries {
		return c.Current()
	}
	return Hold{}, false
}

// HoldOf returns the innermost valid hold of key that ctx carries, of any Locker and kind of key.
func HoldOf(ctx context.Context, key string) (h Hold, ok bool) {
	if c, carries := ctx.Value(HoldKey{}).(carried); carries {
		return c.HoldOf(key)
	}
	return Hold{}, false
}

// Ticket calls lockcore.Lease.Ticket for the innermost hold of key that ctx carries, of any Locker
// and kind of key. It returns an error if ctx carries none.
func Ticket(ctx context.Context, key string, d time.Duration) (string, error) {
	if c, carries := ctx.Value(HoldKey{}).(carried); carries {
		if ticket := c.TicketOf(key); ticket != nil {
			return ticket(ctx, d)
		}
	}
	return "", fmt.Errorf("guard: Ticket: ctx does not hold %q", key)
}

// SkipMinHold makes the release of a lease start no cooldown. ctx is the Context of the lease, and
// its handler did not run. For a nested lease SkipMinHold does nothing.
func SkipMinHold(ctx context.Context) {
	if c, ok := ctx.Value(HoldKey{}).(carried); ok {
		c.SkipMinHold()
	}
}

// BeforeWork reports whether ctx holds a key of any Locker, and no once key. Then the work of the
// caller under a once key has not begun, and a wait would keep the held keys from other calls.
func BeforeWork(ctx context.Context) bool {
	c, ok := ctx.Value(HoldKey{}).(carried)
	return ok && c.BeforeWork()
}

type fixedKey struct{}

// WithFixed returns a ctx with which no new lease is renewed, as with AcquireFixed: also those of
// Claim, AcquireShare and Adopt, which only tests need.
func WithFixed(ctx context.Context) context.Context { return context.WithValue(ctx, fixedKey{}, true) }

// Fixed reports whether ctx is one of WithFixed.
func Fixed(ctx context.Context) bool { return ctx.Value(fixedKey{}) != nil }

// Interim receives the interim answer of a key.
type Interim struct {
	Answer []byte // nil: there is none
}

type interimKey struct{}

// WithInterim returns a ctx for a Claim that does not wait for a key with an interim answer. The
// Claim then fails with a *lockcore.BusyError at once, and sets in.Answer before it returns.
func WithInterim(ctx context.Context, in *Interim) context.Context {
	return context.WithValue(ctx, interimKey{}, in)
}

// InterimOf returns the argument of WithInterim, or nil.
func InterimOf(ctx context.Context) *Interim {
	in, _ := ctx.Value(interimKey{}).(*Interim)
	return in
}

// Panicked says how the run of a once key ends if its function panics. With the zero value the Mode
// of the call decides.
type Panicked struct {
	Value   any  // not nil: the run ends as if its function had returned Value and no error
	Abandon bool // the key is abandoned
}

type panickedKey struct{}

// WithPanicked returns a ctx for guard.OnceValue, which reads p after its function has panicked.
func WithPanicked(ctx context.Context, p *Panicked) context.Context {
	return context.WithValue(ctx, panickedKey{}, p)
}

// PanickedOf returns the argument of WithPanicked, or a zero Panicked.
func PanickedOf(ctx context.Context) Panicked {
	if p, _ := ctx.Value(panickedKey{}).(*Panicked); p != nil {
		return *p
	}
	return Panicked{}
}

// Parked is the state of a key that may have parked entries.
type Parked uint8

// The states.
const (
	ParkedHeld Parked = iota // this process has acquired the key
	ParkedFree               // no process has the key: a hold of this process has ended, or a notification reports it
	ParkedDone               // the key has a record
)
