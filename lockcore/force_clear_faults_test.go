package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Redis was away for so long that each lease looks as old as that of a dead holder. A living holder
// renews its lease before the second look.
// Shows: L16
func TestForceClearAfterOutage(t *testing.T) {
	for away := 13500 * time.Millisecond; away < 19*time.Second; away += 500 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			l, faults, _ := w.Locker(lockcore.Options{})
			operator, theirs, _ := w.Locker(lockcore.Options{})
			le := w.Must(l.Acquire(t.Context(), "k", noWait))
			h, err := operator.Inspect(t.Context(), event.KindExclusive, "k")
			ok(t, err)
			time.Sleep(5 * time.Second)
			faults.Down()
			theirs.Down()
			time.Sleep(away)
			faults.Heal()
			theirs.Heal()
			wantErr(t, "ForceClear", operator.ForceClear(t.Context(), event.KindExclusive, "k", h), lockcore.ErrAlive)
			ok(t, context.Cause(le.Context()))
			ok(t, le.Release(t.Context()))
		})
	}
}

// A renewal of a living holder is lost. The next one arrives before the second look.
// Shows: L16
func TestForceClearRenewalLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		operator, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", noWait))
		ok(t, le.Extend(t.Context(), 30*time.Second)) // Faults learns the name of the script
		time.Sleep(5 * time.Second)
		<-faults.LoseRequest(faulty.Script("renew")).Struck()
		h, err := operator.Inspect(t.Context(), event.KindExclusive, "k")
		ok(t, err)
		wantErr(t, "ForceClear", operator.ForceClear(t.Context(), event.KindExclusive, "k", h), lockcore.ErrAlive)
		ok(t, context.Cause(le.Context()))
		ok(t, le.Release(t.Context()))
	})
}

// A holder has died. The clock of the server is slower than that of the operator, by 1 %.
// Shows: L16
func TestForceClearSlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		operator, _, _ := w.Locker(lockcore.Options{})
		w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: longLease, MaxHold: time.Minute}))
		time.Sleep(2 * time.Minute)
		h, err := operator.Inspect(t.Context(), event.KindExclusive, "k")
		ok(t, err)
		look, stop := time.Now(), make(chan struct{})
		defer close(stop)
		go func() {
			for tick := time.Tick(time.Second); ; {
				select {
				case <-tick:
					w.Memory.Redis.SetTime(time.Now().Add(-time.Since(look) / 100))
				case <-stop:
					return
				}
			}
		}()
		ok(t, operator.ForceClear(t.Context(), event.KindExclusive, "k", h))
	})
}

// A renewal is under way while Ticket fails, and its reply comes later. The lease goes on, and its
// next renewal stores again that it is renewed.
func TestForceClearTicketBesideRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		operator, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", noWait))
		ok(t, le.Extend(t.Context(), 30*time.Second)) // Faults learns the name of the script
		renewal := faults.Hold(faulty.Script("renew"))
		<-renewal.Struck()
		ctx, cancel := context.WithCancel(t.Context())
		transfer := faults.CutReply(faulty.Script("renew"))
		go func() { <-transfer.Struck(); cancel() }()
		_, err := le.Ticket(ctx, time.Minute)
		wantErr(t, "Ticket", err, lockcore.ErrUnavailable)
		renewal.Deliver()
		<-renewal.Replied()
		time.Sleep(20 * time.Second)
		if h, err := operator.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.Fixed {
			t.Errorf("Fixed is %v, %v", h.Fixed, err)
		}
		ok(t, le.Release(t.Context()))
	})
}
