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
	ID    string // another for every hold, so that equal tokens of two holds are told apart
}

// Of returns the hold under which ctx holds key, the innermost if there are several. It costs no command. It is a snapshot: from here on only
// the resource can tell whether it is still the newest.
func Of(ctx context.Context, key string) (Hold, error) {
	token, id, ok := lockcore.HoldOf(ctx, key)
	switch {
	case ok:
		return Hold{Key: key, Token: token, ID: id}, nil
	case ctx.Err() != nil:
		return Hold{}, fmt.Errorf("%w: %q: %w", ErrNoHold, key, context.Cause(ctx))
	}
	return Hold{}, fmt.Errorf("%w: %q", ErrNoHold, key)
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
