package lockcore

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	longestPause = 24 * time.Hour
	maxReason    = 256 // bytes
)

// Pause lets no call of Acquire, AcquireShare or Throttle of key begin for d, in all processes.
// Calls that run go on, and keep their leases. Waiting calls wait for the end of the pause, each up
// to its own Wait. A call that is refused gets a [*BusyError] whose field PauseReason is the
// reason.
//
// If the key is paused already, the pause that ends later counts. So a second pause makes the first
// one longer, never shorter: a 429 does not end an operator's pause. A d of 0 ends the pause, and
// also a cooldown that would have ended before it. Holds that a process hands from one call to the
// next may go on for 5 ms. d is 0, or 1 ms to 24 h. reason is shown to those who wait, and by
// Inspect: who paused the key and why. It is stored in Redis: valid UTF-8 of 1 to 256 bytes, and
// ignored with d 0.
//
// If no reply arrives, Pause sends the command again, for at most 1 s. It returns ErrUnavailable, also
// after Close, or an error of its arguments, and [context.Cause] if ctx has ended before.
func (l *Locker) Pause(ctx context.Context, key string, d time.Duration, reason string) error {
	var bad []error
	if d < 0 || d > longestPause || d > 0 && d < time.Millisecond {
		bad = append(bad, fmt.Errorf("lockcore: Pause: d is %v, must be 0 or between 1ms and %v", d, longestPause))
	}
	if d == 0 {
		reason = ""
	} else {
		bad = append(bad, checkReason("Pause: reason", reason))
	}
	if err := errtext.Join(bad...); err != nil {
		return err
	}
	k, err := l.operatorKey(ctx, event.KindExclusive, key)
	if err != nil {
		return err
	}
	if err := l.backend.Pause(ctx, &k, d, reason); err != nil {
		return unavailable(err)
	}
	l.report(ctx, event.Paused{Key: key, For: d, Reason: reason})
	return nil
}

func checkReason(what, reason string) error {
	switch {
	case !utf8.ValidString(reason) || strings.Contains(reason, "\x00"):
		return fmt.Errorf("lockcore: %s must be valid UTF-8 without NUL", what)
	case reason == "" || len(reason) > maxReason:
		return fmt.Errorf("lockcore: %s is %d bytes long, must be between 1 and %d bytes", what, len(reason), maxReason)
	}
	return nil
}
