package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxKeyLen = 512     // as lockcore's
	maxIDLen  = 64      // Of makes 32
	maxToken  = 1 << 53 // what a Lua number holds exactly; today's tokens are a fifth of it
)

// ErrNoHold is what Of answers where ctx does not hold the key: it never did, or the hold was released or lost. The cause of a ctx that
// has ended is wrapped too.
var ErrNoHold = errors.New("fence: ctx does not hold the key")

// Hold is what a resource needs to know of one hold of a key. Its fields may travel: to another service that owns the resource, say.
type Hold struct {
	Key   string // of the lock
	Token int64  // grows with every hold of Key
	ID    string // distinguishes holds with equal tokens; shares that are held at the same time have one ID
}

// Current returns the innermost hold that ctx carries, of any key. It sends no command. Only the
// resource can tell whether the hold is still the newest one.
func Current(ctx context.Context) (Hold, error) {
	if h, ok := lockcore.Current(ctx); ok {
		return Hold{Key: h.Key, Token: h.Token, ID: h.ID()}, nil
	}
	return none(ctx, ErrNoHold)
}

// Of is Current for a key: it returns the innermost hold of key that ctx carries.
func Of(ctx context.Context, key string) (Hold, error) {
	h, ok := lockcore.HoldOf(ctx, key)
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

// check refuses what no hold can be, before a resource remembers it.
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

// after says whether h may write to what has last heard of token under id.
func (h Hold) after(token int64, id string) bool {
	return h.Token > token || h.Token == token && h.ID == id
}

// stale is the refusal of h by what has seen a token.
func (h Hold) stale(seen int64) error { return &StaleError{Key: h.Key, Token: h.Token, Seen: seen} }
