package cronmw

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	lookBack   = 32                 // the maximum number of earlier ticks that are checked
	reportTime = time.Second        // the longest time by which the check delays fn if Redis is unavailable
	reportKeep = 7 * 24 * time.Hour // how long a report is remembered, so that no other instance repeats it
)

// reportAbandoned reports the tick before a's if its instance died and no standby takes it over. It
// looks at earlier ticks past these:
//
//   - free ticks: no instance claimed them
//   - held ticks: their instance may have died before the lease ended
//   - ticks that were skipped because of such a lease
//   - ticks that have run, but are not older than patience returns (a lease and 3 s)
//
// It stops at an older tick that has run. Under Allow a tick may be further back, and is then not
// found, if its instance died after a long run next to others.
//
// Several instances may find the same tick, because each looks back over several ticks. A separate
// once key decides which of them reports it. If that instance dies before the report, no instance
// reports it.
func (a *claim) reportAbandoned(ctx context.Context) {
	if a.job.Standby { // a standby takes the tick over, or has taken it over
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	at := a.Tick.Time
	for range lookBack {
		before, ok := a.latest(at.Add(-time.Second))
		if !ok {
			return
		}
		at = before
		t := Tick{Name: a.name, Time: at.In(a.zone)}
		h, err := a.locks.Inspect(ctx, event.KindOnce, t.Key())
		switch {
		case err != nil:
			return
		case h.State == lockcore.StateAbandoned:
			a.report(ctx, t, h)
			return
		case h.State == lockcore.StateDone && !skippedIn(h.Record) && a.Tick.Time.Sub(at) > a.patience():
			return
		}
	}
}

// report reports that t was abandoned, with the holder of h, unless another instance has reported
// it.
func (a *claim) report(ctx context.Context, t Tick, h lockcore.Holding) {
	o := guard.OnceOptions{Keep: reportKeep, Terms: lockcore.Terms{Name: a.job.Terms.Name, Wait: lockcore.NoWait, MinHold: 1}}
	out, err := guard.Once(ctx, a.locks, t.Key()+"#abandoned", o, func(context.Context) error { return nil })
	if err != nil || out == guard.Replayed {
		return
	}
	access.Of(a.locks).Report(ctx, event.TickAbandoned{Name: a.job.Terms.Name, Key: t.Key(), Holder: h.Holder})
	if a.job.OnResult != nil {
		a.job.OnResult(Result{Tick: t, Outcome: Abandoned, Err: &lockcore.AbandonedError{
			Key: t.Key(), Holder: h.Holder, HeldFor: h.HeldFor, Attempt: h.Attempt,
		}})
	}
}

// skippedText is the start of the failure in the record of a skipped tick.
const skippedText = "cronmw: skipped: "

func skippedIn(rec *lockcore.Record) bool {
	if rec == nil {
		return false
	}
	r, err := idempotency.Decode(rec.Data)
	return err == nil && strings.HasPrefix(r.Failure(), skippedText)
}
