package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/access"
)

const (
	maxKeyLen = 512     // the limit of lockcore
	maxIDLen  = 64      // the IDs of Of have 32 bytes
	maxToken  = 1 << 53 // Lua numbers are exact up to this value; today's tokens are a fifth of it
)

// ErrNoHold is the error of [Of] for a ctx that holds no key. It never held one, or
// its hold was released or lost. If ctx has ended, the error also wraps its cause.
var ErrNoHold = errors.New("fence: ctx does not hold the key")

// Hold identifies one hold of a key for a resource. You can send its fields to another process, for
// example to the service that owns the resource.
type Hold struct {
	Key   string // of the lock
	Token int64  // fencing token; it grows with every hold of Key
	ID    string // distinguishes holds with equal tokens; shares that are held at the same time have one ID
}

// Of returns the innermost hold of key that ctx carries, or [ErrNoHold]. It sends no command.
func Of(ctx context.Context, key string) (Hold, error) {
	h, ok := access.HoldOf(ctx, key)
	if ok {
		return Hold{Key: key, Token: h.Token, ID: h.ID()}, nil
	}
	return none(ctx, fmt.Errorf("%w: %q", ErrNoHold, key))
}

func none(ctx context.Context, err error) (Hold, error) {
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return Hold{}, err
}

// check returns an error if h cannot be a hold. So no resource remembers such an h.
func (h Hold) check() error {
	switch {
	case h.Key == "" || len(h.Key) > maxKeyLen:
		return fmt.Errorf("fence: Hold.Key has %d bytes, must have 1 to %d", len(h.Key), maxKeyLen)
	case h.Token <= 0 || h.Token >= maxToken:
		return fmt.Errorf("fence: Hold.Token is %d, must be between 1 and 2^53", h.Token)
	case h.ID == "" || len(h.ID) > maxIDLen:
		return fmt.Errorf("fence: Hold.ID has %d bytes, must have 1 to %d", len(h.ID), maxIDLen)
	}
	return nil
}

// after reports whether h may write to a resource that has last seen token and id.
func (h Hold) after(token int64, id string) bool {
	return h.Token > token || h.Token == token && h.ID == id
}

// stale returns the error of h for a resource that has seen the token seen.
func (h Hold) stale(seen int64) error { return &StaleError{Key: h.Key, Token: h.Token, Seen: seen} }
