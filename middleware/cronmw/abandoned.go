package cronmw

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	lookBack   = 32          // how many earlier ticks are checked, until one that has run
	reportTime = time.Second // how long the check may delay fn when Redis does not answer
	reportKeep = 7 * 24 * time.Hour
)

// reportAbandoned reports the tick before a's if its instance died and no standby takes it over. It goes further back
// past three kinds of ticks: free ones, for which no instance was there; held ones, whose instance may have died before
// the lease ended; and ticks that were skipped because of such a lease. It stops at a tick that has run and is older
// than a lease. Under Allow a tick whose instance died after a long run beside others may be further back, and is then
// not found.
//
// Several instances may find the same tick, because each looks back over several ticks. A separate once key decides
// which of them reports it. If that instance dies before the report, no instance reports it.
func (a *attempt) reportAbandoned(ctx context.Context) {
	if a.job.Standby { // a standby takes it over, or has done so
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
		h, err := a.locks.Inspect(ctx, lockcore.KindOnce, t.Key(), lockcore.WithRecord)
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

// report reports that t was abandoned, as h shows, unless another instance has done so.
func (a *attempt) report(ctx context.Context, t Tick, h lockcore.Holding) {
	o := guard.OnceOptions{Keep: reportKeep, Terms: lockcore.Terms{Name: a.job.Terms.Name, Wait: lockcore.NoWait, MinHold: 1}}
	out, err := guard.Once(ctx, a.locks, t.Key()+"#abandoned", o, func(context.Context) error { return nil })
	if err != nil || out == guard.Replayed {
		return
	}
	a.locks.Internal().Report(ctx, guard.TickAbandoned{Name: a.job.Terms.Name, Key: t.Key(), Holder: h.Holder})
	if a.job.OnResult != nil {
		a.job.OnResult(Result{Tick: t, Outcome: Abandoned, Err: &lockcore.AbandonedError{
			Key: t.Key(), Holder: h.Holder, HeldFor: h.HeldFor, Attempt: h.Attempt,
		}})
	}
}

// skippedText begins the record of a tick that was skipped.
const skippedText = "cronmw: skipped: "

func skippedIn(rec *lockcore.Record) bool {
	if rec == nil {
		return false
	}
	r, err := idempotency.Decode(rec.Data)
	return err == nil && strings.HasPrefix(r.Failure(), skippedText)
}
