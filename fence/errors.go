package fence

import (
	"errors"
	"fmt"
)

// ErrStale: the resource has seen a newer hold, or another hold with the same token. Nothing was
// written. The holder has lost the key and must stop. A retry under the same hold does not help.
// The error is a *StaleError.
var ErrStale = errors.New("fence: stale token")

// StaleError reports that a resource has seen a newer hold, or another one with an equal token.
type StaleError struct {
	Key   string // of the lock
	Token int64  // the stale token
	// Seen is the newest token that the resource has seen. If it equals Token, it belongs to
	// another hold. 0 means that the resource remembers no hold, and that Token is too old.
	Seen int64
}

func (e *StaleError) Error() string {
	switch e.Seen {
	case 0:
		return fmt.Sprintf("fence: token %d of %q is older than Keep, and the resource remembers no hold", e.Token, e.Key)
	case e.Token:
		return fmt.Sprintf("fence: token %d of %q belongs to another hold", e.Token, e.Key)
	}
	return fmt.Sprintf("fence: token %d of %q is stale: %d was seen", e.Token, e.Key, e.Seen)
}

// Is makes a StaleError match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// ErrorType returns the class of the error for telemetry.
func (e *StaleError) ErrorType() string { return "stale" }
