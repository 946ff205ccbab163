package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	defaultKeep = 24 * time.Hour
	maxKeep     = 366 * 24 * time.Hour
)

// Claim describes a call of [Locker.Claim].
type Claim struct {
	Terms Terms
	// Keep is how long the number of runs is remembered. An abandoned run is remembered for Keep
	// too, but at least 24 h, or 100 days with AtMostOnce. Complete sets how long a record is kept.
	// Default 24 h. 1 s to 366 days.
	Keep time.Duration
	// Fingerprint stands for the payload. It is opaque and has at most 64 bytes. A key that was
	// used with another fingerprint is refused with a *MismatchError. Empty: not compared.
	Fingerprint []byte
	// AtMostOnce refuses an abandoned key, for as long as it is remembered, instead of taking it
	// over. Each refusal extends that time to Keep, at least 100 days.
	AtMostOnce bool
	// Check, if set, returns an error for a stored record that cannot be used. Then Claim returns
	// ErrRecord and reports BadRecord.
	Check func(record []byte) error
}

func (c *Claim) validate() error {
	var errs []error
	if err := c.Terms.check(); err != nil {
		errs = append(errs, err)
	}
	if c.Keep != 0 && (c.Keep < time.Second || c.Keep > maxKeep) {
		errs = append(errs, fmt.Errorf("lockcore: Claim.Keep is %v, must be between 1s and %v", c.Keep, maxKeep))
	}
	if len(c.Fingerprint) > access.MaxFingerprint {
		errs = append(errs, fmt.Errorf("lockcore: Claim.Fingerprint is %d bytes long, must be at most %d", len(c.Fingerprint), access.MaxFingerprint))
	}
	return errtext.Join(errs...)
}

// Record is the record of a done key: opaque bytes. Package idempotency defines their format.
type Record struct {
	Data    []byte
	Attempt int // number of the run that was recorded, from 1
}

// Claim waits for a once key, and returns a lease on it, or its record if the key is done. Once
// keys have a separate namespace: the same name in Acquire is another key. Exactly one of the
// results is not nil:
//
//   - a lease: run the handler, then call Complete, Release or Abandon
//   - a record: the key is done
//   - an error: one of those of Acquire except ErrUpgrade, an *AbandonedError, a *MismatchError,
//     ErrRecord or ErrNested
func (l *Locker) Claim(ctx context.Context, key string, c Claim) (*Lease, *Record, error) {
	if err := errtext.Join(checkKey(key), c.validate()); err != nil {
		return nil, nil, errtext.Wrap(ErrNotRun, err)
	}
	if e := entryIn(ctx, l, event.KindOnce, key); e != nil && e.holds() {
		return nil, nil, fmt.Errorf("%w: %q", ErrNested, key)
	}
	once := &call{
		l: l, kind: event.KindOnce, key: key, terms: c.Terms, keep: cmp.Or(c.Keep, defaultKeep), atMostOnce: c.AtMostOnce,
		fingerprint: string(c.Fingerprint), check: c.Check, interim: access.InterimOf(ctx), fixed: access.Fixed(ctx),
	}
	once.terms.fill(&l.terms)
	h, rec, err := once.run(ctx)
	if h == nil {
		return nil, rec, err
	}
	return h.firstLease(), nil, nil
}
