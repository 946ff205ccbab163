package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	shortestRestriction = time.Second
	longestRestriction  = 30 * 24 * time.Hour
)

// Restriction bounds the calls of a key for a time, see [Locker.Restrict].
type Restriction struct {
	// Limit bounds the limits of AcquireShare, and has no effect on Throttle: 1 to 1,000,000. 0
	// bounds none; to let no call begin, use [Locker.Pause].
	Limit int
	// Rate bounds the rates of Throttle and AcquireShare. The zero value bounds none. It has no Cost: each
	// call takes its own.
	Rate Rate
	// For is how long it lasts: 1 s to 30 days. Inspect returns what is left of it.
	For time.Duration
	// Reason says to operators who restricted the key and why. It is stored in Redis: valid UTF-8 of 1 to
	// 256 bytes.
	Reason string
}

// Validate reports every problem of r at once. Each message names the field, its value and the bound.
func (r Restriction) Validate() error {
	var errs []error
	if r.Limit < 0 || r.Limit > maxLimit {
		errs = append(errs, fmt.Errorf("lockcore: Restriction.Limit is %d, must be between 0 and %d", r.Limit, maxLimit))
	}
	switch {
	case r.Rate != (Rate{}):
		if errs = append(errs, r.Rate.Validate()); r.Rate.Cost != 0 {
			errs = append(errs, fmt.Errorf("lockcore: Restriction.Rate.Cost is %d, must be 0: each call takes its own", r.Rate.Cost))
		}
	case r.Limit == 0:
		errs = append(errs, errors.New("lockcore: Restriction.Limit is 0 and Restriction.Rate is zero, one of them must bound something"))
	}
	if r.For < shortestRestriction || r.For > longestRestriction {
		errs = append(errs, fmt.Errorf("lockcore: Restriction.For is %v, must be between %v and %v", r.For, shortestRestriction, longestRestriction))
	}
	return errtext.Join(append(errs, checkReason("Restriction.Reason", r.Reason))...)
}

// Restrict bounds the calls of AcquireShare and Throttle of key for r.For, in all processes and
// also after a deploy: each gets the smaller of r and of its own limit and rate. This lets at most
// two calls of a partner run:
//
//	locks.Restrict(ctx, "partner:acme", lockcore.Restriction{Limit: 2, For: time.Hour, Reason: "errors since 14:00"})
//
// Calls that run go on. The zero value of r ends the restriction. A second one replaces the first
// one.
//
//   - What calls take from r.Rate is forgotten at the end, or at a second restriction. They take their
//     cost from their own rate too.
//   - Calls of AcquireShare without a rate get r.Rate, with a cost of 1. Calls of Acquire are not
//     restricted, because they run one at a time anyway: [Locker.Pause] stops them.
//   - Calls with the limit Unlimited get r.Limit too. Those of one process that begin within 5 ms
//     count as one.
//   - A call whose Weight is greater than r.Limit begins when no other share is held.
//   - Shares that a process hands from one call to the next may go on for 5 ms.
//   - Waiting calls learn of the end within 2 s.
//
// If no reply arrives, Restrict sends the command again, for at most 1 s. It returns ErrUnavailable,
// also after Close, an error of r.Validate, ErrUnsupported on a majority of servers, and
// [context.Cause] if ctx has ended before.
func (l *Locker) Restrict(ctx context.Context, key string, r Restriction) error {
	if r != (Restriction{}) {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	k, err := l.operatorKey(ctx, event.KindExclusive, key)
	if err != nil {
		return err
	}
	b := backend.Restriction{Limit: r.Limit, For: r.For, Reason: r.Reason}
	if r.Rate.N > 0 {
		b.Rate = r.Rate.filled()
		b.Rate.Cost = 0
	}
	if err := l.backend.Restrict(ctx, &k, b); err != nil {
		return unavailable(err)
	}
	l.report(ctx, event.Restricted{Key: key, Limit: b.Limit, N: b.Rate.N, Per: b.Rate.Per, Burst: b.Rate.Burst, For: r.For, Reason: r.Reason})
	return nil
}

func restrictionOf(r backend.Restriction) Restriction {
	return Restriction{Limit: r.Limit, Rate: Rate{N: r.Rate.N, Per: r.Rate.Per, Burst: r.Rate.Burst}, For: r.For, Reason: r.Reason}
}
