package fence

import (
	"errors"
	"fmt"
)

// ErrStale: the resource has heard of a newer hold, or of another one with the same token. Nothing was written. Whoever gets it has lost
// the key and must stop; trying again under the same hold never helps. The error is a *StaleError.
var ErrStale = errors.New("fence: stale token")

// StaleError says which token was refused, and what the resource has seen.
type StaleError struct {
	Key   string // of the lock
	Token int64  // that was refused
	Seen  int64  // by the resource; equal to Token: of another hold; 0: it remembers none, and Token is too old to be taken for new
}

func (e *StaleError) Error() string {
	switch e.Seen {
	case 0:
		return fmt.Sprintf("fence: token %d of %q is older than Keep, and the resource remembers no hold", e.Token, e.Key)
	case e.Token:
		return fmt.Sprintf("fence: token %d of %q is that of another hold", e.Token, e.Key)
	}
	return fmt.Sprintf("fence: token %d of %q is stale: %d was seen", e.Token, e.Key, e.Seen)
}

// Is makes a StaleError match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// ErrorType names the class for telemetry.
func (e *StaleError) ErrorType() string { return "stale" }
