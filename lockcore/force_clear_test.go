package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// forced is a key in virtual time, with Lockers on the same backend.
type forced struct {
	*testing.T
	holder, operator, other *lockcore.Locker
	events                  *forceEvents // of operator
}

// forceEvents collects the events of ForceClear.
type forceEvents struct {
	mu  sync.Mutex
	all []event.ForceCleared
}

func (*forceEvents) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (*forceEvents) Traceparent(context.Context) string                             { return "" }

func (f *forceEvents) Event(_ context.Context, e event.Event) {
	if e, is := e.(event.ForceCleared); is {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all = append(f.all, e)
	}
}

// forcing runs a test in virtual time, on Redis and in memory.
func forcing(t *testing.T, test func(f *forced)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			f := &forced{T: t, events: new(forceEvents)}
			f.holder, _, _ = w.Locker(lockcore.Options{})
			f.operator, _, _ = w.Locker(lockcore.Options{Observer: f.events})
			f.other, _, _ = w.Locker(lockcore.Options{})
			test(f)
		})
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, events := newSpace(t), new(forceEvents)
			o := lockcore.Options{Observer: events}
			test(&forced{t, s.Locker(o), s.Locker(o), s.Locker(o), events})
		})
	})
}

func (f *forced) see(kind event.Kind) lockcore.Holding {
	f.Helper()
	h, err := f.operator.Inspect(f.Context(), kind, "k")
	ok(f.T, err)
	return h
}

func (f *forced) force(kind event.Kind) error {
	f.Helper()
	return f.operator.ForceClear(f.Context(), kind, "k", f.see(kind))
}

func (f *forced) forceEvenAlive(kind event.Kind) error {
	f.Helper()
	return f.operator.ForceClearEvenAlive(f.Context(), kind, "k", f.see(kind))
}

func (f *forced) acquire(l *lockcore.Locker, t lockcore.Terms) *lockcore.Lease {
	f.Helper()
	return f.call(l, testcall.Call{Terms: t})
}

func (f *forced) call(l *lockcore.Locker, c testcall.Call) *lockcore.Lease {
	f.Helper()
	le, err := c.Acquire(f.Context(), l, "k")
	ok(f.T, err)
	return le
}

// waiting returns the lease of a call of the other process that waits for the key.
func (f *forced) waiting(kind event.Kind) <-chan *lockcore.Lease {
	got := make(chan *lockcore.Lease, 1)
	go func() {
		var le *lockcore.Lease
		var err error
		if kind == event.KindOnce {
			le, _, err = f.other.Claim(f.Context(), "k", lockcore.Claim{Terms: lockcore.Terms{Wait: 2 * time.Hour}})
		} else {
			le, err = f.other.Acquire(f.Context(), "k", lockcore.Terms{Wait: 2 * time.Hour})
		}
		if err != nil {
			f.Error(err)
		}
		got <- le
	}()
	synctest.Wait()
	time.Sleep(5 * time.Second)
	return got
}

// within checks how long a step took.
func (f *forced) within(what string, start time.Time, least, most time.Duration) {
	f.Helper()
	if took := time.Since(start); took < least || took > most {
		f.Errorf("%s after %v, want %v to %v", what, took, least, most)
	}
}

const (
	longLease = time.Hour
	silence   = 32*time.Minute + time.Second // after a renewal of longLease, a living holder has sent the next one
)

// A holder dies under a lease of an hour. Without ForceClear its key stays held for that time.
// ForceClear waits until a living holder must have renewed the lease. Then a waiting process gets the
// key at once, with a greater token.
// Shows: L16
func TestForceClearDead(t *testing.T) {
	forcing(t, func(f *forced) {
		granted := time.Now()
		le := f.acquire(f.holder, lockcore.Terms{Lease: longLease, MaxHold: time.Minute}) // the renewals end with MaxHold, as with the process
		time.Sleep(2 * time.Minute)
		ok(f.T, f.operator.Revoke(f.Context(), event.KindExclusive, "k")) // frees no key
		got := f.waiting(event.KindExclusive)
		ok(f.T, f.force(event.KindExclusive))
		f.within("cleared", granted, silence, silence+time.Minute)
		next := <-got
		f.within("acquired", granted, silence, silence+time.Minute)
		if next.Token() <= le.Token() || !next.Abandoned() {
			f.Errorf("token %d after %d, abandoned %v", next.Token(), le.Token(), next.Abandoned())
		}
		if err := le.Release(f.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
			f.Errorf("the late release: %v", err)
		}
		if h := f.see(event.KindExclusive); h.State != lockcore.StateHeld || h.Holder.Locker != f.other.ID() {
			f.Errorf("after the late release: %+v", h)
		}
		ok(f.T, next.Release(f.Context()))
		events := f.events.all
		if len(events) != 1 || events[0].Key != "k" || events[0].Kind != event.KindExclusive || events[0].Holder.Locker != f.holder.ID() || events[0].Token != le.Token() || events[0].EvenAlive {
			f.Errorf("events %+v", events)
		}
	})
}

// A living holder renews its lease while ForceClear waits, and keeps the key.
// Shows: L16
func TestForceClearAlive(t *testing.T) {
	for name, extend := range map[string]bool{"renewed": false, "extended": true} {
		t.Run(name, func(t *testing.T) {
			forcing(t, func(f *forced) {
				terms := lockcore.Terms{Lease: longLease}
				if extend {
					terms.Lease = 30 * time.Second
				}
				le := f.acquire(f.holder, terms)
				if extend { // its renewals do not move the end of the lease
					ok(f.T, le.Extend(f.Context(), longLease))
				}
				for range 5 {
					time.Sleep(17 * time.Minute)
					start := time.Now()
					wantErr(f.T, "ForceClear", f.force(event.KindExclusive), lockcore.ErrAlive)
					f.within("refused", start, 0, silence+time.Minute)
				}
				ok(f.T, context.Cause(le.Context()))
				if h := f.see(event.KindExclusive); h.State != lockcore.StateHeld || h.Token != le.Token() {
					f.Errorf("the key is %+v", h)
				}
				ok(f.T, le.Release(f.Context()))
			})
		})
	}
}

// ForceClearEvenAlive: a living hold is lost at once, and its late commands change nothing.
// Shows: L16, B3
func TestForceClearEvenAlive(t *testing.T) {
	forcing(t, func(f *forced) {
		le := f.acquire(f.holder, lockcore.Terms{Lease: longLease})
		got := f.waiting(event.KindExclusive)
		start := time.Now()
		ok(f.T, f.forceEvenAlive(event.KindExclusive))
		<-le.Context().Done()
		next := <-got
		f.within("lost and acquired", start, 0, 10*time.Millisecond)
		wantErr(f.T, "cause", context.Cause(le.Context()), lockcore.ErrLost)
		if next.Token() <= le.Token() || !next.Abandoned() {
			f.Errorf("token %d after %d, abandoned %v", next.Token(), le.Token(), next.Abandoned())
		}
		wantErr(f.T, "Extend", le.Extend(f.Context(), time.Minute), lockcore.ErrLost)
		wantErr(f.T, "Release", le.Release(f.Context()), lockcore.ErrLost)
		time.Sleep(5 * time.Minute)
		ok(f.T, context.Cause(next.Context()))
		ok(f.T, next.Release(f.Context()))
	})
}

// ForceClear changes nothing if the key has another hold than the one that was shown, or none, or if
// it is shared.
// Shows: L16
func TestForceClearChanged(t *testing.T) {
	forcing(t, func(f *forced) {
		first := f.acquire(f.holder, lockcore.Terms{Lease: longLease})
		seen := f.see(event.KindExclusive)
		force := func() error {
			return f.operator.ForceClearEvenAlive(f.Context(), event.KindExclusive, "k", seen)
		}
		ok(f.T, first.Release(f.Context()))
		wantErr(f.T, "of a free key", force(), lockcore.ErrChanged)
		second := f.acquire(f.other, lockcore.Terms{Lease: longLease})
		wantErr(f.T, "of another holder", force(), lockcore.ErrChanged)
		wantErr(f.T, "of another holder, not even alive", f.operator.ForceClear(f.Context(), event.KindExclusive, "k", seen), lockcore.ErrChanged)
		go func() { // while ForceClear waits
			time.Sleep(time.Minute)
			ok(f.T, second.Release(f.Context()))
		}()
		wantErr(f.T, "of a key that is released meanwhile", f.force(event.KindExclusive), lockcore.ErrChanged)
		if err := f.force(event.KindExclusive); err == nil || !strings.Contains(err.Error(), `"k" is free, must be held`) {
			f.Errorf("a free key: %v", err)
		}
		share := f.call(f.holder, testcall.Call{Limit: lockcore.Limit{N: 2}})
		if err := f.forceEvenAlive(event.KindExclusive); err == nil || !strings.Contains(err.Error(), `"k" is shared, must be held by a call that has it alone`) {
			f.Errorf("a share: %v", err)
		}
		ok(f.T, share.Release(f.Context()))
	})
}

// A once key whose run has begun is abandoned after ForceClear, not free.
// Shows: L16
func TestForceClearOnce(t *testing.T) {
	forcing(t, func(f *forced) {
		claim := func(l *lockcore.Locker, c lockcore.Claim) (*lockcore.Lease, error) {
			c.Terms = lockcore.Terms{Lease: longLease, Wait: lockcore.NoWait}
			le, _, err := l.Claim(f.Context(), "k", c)
			return le, err
		}
		le, err := claim(f.holder, lockcore.Claim{AtMostOnce: true})
		ok(f.T, err)
		ok(f.T, f.forceEvenAlive(event.KindOnce))
		if h := f.see(event.KindOnce); h.State != lockcore.StateAbandoned || h.Attempt != 1 || h.Holder.Locker != f.holder.ID() {
			f.Errorf("the key is %+v", h)
		}
		_, err = claim(f.other, lockcore.Claim{AtMostOnce: true})
		wantErr(f.T, "AtMostOnce", err, lockcore.ErrAbandoned)
		_ = le.Abandon(f.Context())
		got := f.waiting(event.KindOnce)
		if next := <-got; !next.Abandoned() || next.Attempt() != 2 || next.Token() <= le.Token() {
			f.Errorf("the next run has attempt %d, token %d after %d", next.Attempt(), next.Token(), le.Token())
		} else {
			ok(f.T, next.Complete(f.Context(), []byte("r"), time.Hour))
		}
	})
}

// A lease of AcquireFixed shows nothing about its holder, so only ForceClearEvenAlive ends it.
// Shows: L16
func TestForceClearUnrenewed(t *testing.T) {
	forcing(t, func(f *forced) {
		le := f.call(f.holder, testcall.Call{Fixed: true, Terms: lockcore.Terms{Lease: longLease}})
		time.Sleep(50 * time.Minute)
		if h := f.see(event.KindExclusive); !h.Fixed || h.Lease != longLease || h.Remaining != 10*time.Minute || h.Holder.PID == 0 {
			f.Errorf("of AcquireFixed: %+v", h)
		}
		wantErr(f.T, "AcquireFixed", f.force(event.KindExclusive), lockcore.ErrAlive)
		ok(f.T, f.forceEvenAlive(event.KindExclusive))
		<-le.Context().Done()
		wantErr(f.T, "Release", le.Release(f.Context()), lockcore.ErrLost)
	})
}

// A hold that was transferred is not renewed until its adoption.
// Shows: L16
func TestForceClearTransferred(t *testing.T) {
	forcing(t, func(f *forced) {
		ticket := ticketOf(f.T, f.acquire(f.holder, lockcore.Terms{}), longLease)
		time.Sleep(50 * time.Minute)
		if h := f.see(event.KindExclusive); !h.Fixed {
			f.Errorf("transferred: %+v", h)
		}
		wantErr(f.T, "transferred", f.force(event.KindExclusive), lockcore.ErrAlive)
		le, err := f.other.Adopt(f.Context(), ticket, lockcore.Terms{})
		ok(f.T, err)
		if h := f.see(event.KindExclusive); h.Fixed {
			f.Errorf("adopted: %+v", h)
		}
		wantErr(f.T, "adopted", f.force(event.KindExclusive), lockcore.ErrAlive)
		ticket = ticketOf(f.T, le, longLease)
		ok(f.T, f.forceEvenAlive(event.KindExclusive))
		_, err = f.other.Adopt(f.Context(), ticket, lockcore.Terms{})
		wantErr(f.T, "Adopt", err, lockcore.ErrLost)
	})
}

// A lease goes on after Ticket returned an error. Its next renewal stores again that it is renewed.
func TestForceClearTicketFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", noWait))
		ok(t, le.Extend(t.Context(), time.Minute)) // opens the connection of Ticket
		faults.SilenceReplies()
		_, err := le.Ticket(t.Context(), time.Minute)
		wantErr(t, "Ticket", err, lockcore.ErrUnavailable)
		faults.Heal()
		unrenewed := func(want bool) {
			t.Helper()
			h, err := other.Inspect(t.Context(), event.KindExclusive, "k")
			if ok(t, err); h.Fixed != want {
				t.Errorf("Fixed is %v, want %v: %+v", h.Fixed, want, h)
			}
		}
		unrenewed(true)
		time.Sleep(15 * time.Second)
		unrenewed(false)
		ok(t, le.Release(t.Context()))
	})
}

// While ForceClear waits, the end of its ctx and Close of its Locker end it. It has changed nothing.
func TestForceClearCanceled(t *testing.T) {
	forcing(t, func(f *forced) {
		le := f.acquire(f.holder, lockcore.Terms{Lease: longLease})
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(f.Context())
		seen := f.see(event.KindExclusive)
		time.AfterFunc(time.Second, func() { cancel(why) })
		wantErr(f.T, "ctx", f.operator.ForceClear(ctx, event.KindExclusive, "k", seen), why)
		time.AfterFunc(time.Second, func() { _ = f.operator.Close(context.Background()) })
		start := time.Now()
		wantErr(f.T, "Close", f.operator.ForceClear(f.Context(), event.KindExclusive, "k", seen), lockcore.ErrUnavailable)
		f.within("ended", start, time.Second, 3*time.Second)
		ok(f.T, le.Release(f.Context()))
	})
}

// A reply of force_clear.lua is lost after the next process has the key. ForceClear is sent again, and
// the new hold stays.
func TestForceClearReplyLost(t *testing.T) {
	onWorlds(t, func(t *testing.T, w *world) {
		l, _, _ := w.Locker(lockcore.Options{})
		operator, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: longLease}))
		seen, err := operator.Inspect(t.Context(), event.KindExclusive, "k")
		ok(t, err)
		f := faults.CutReply(faulty.Script("force_clear"))
		ended := make(chan error, 1)
		go func() {
			ended <- operator.ForceClearEvenAlive(t.Context(), event.KindExclusive, "k", seen)
		}()
		next := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{Wait: 10 * time.Second}))
		ok(t, <-ended)
		<-f.Struck()
		<-le.Context().Done()
		wantErr(t, "Release of the old hold", le.Release(t.Context()), lockcore.ErrLost)
		ok(t, next.Release(t.Context()))
	})
}

// On a real server, ForceClear ends the lease of a holder whose connection is down, and not the lease
// of one that lives.
// Shows: L16
func TestForceClearReal(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w := realWorld(t)
	l, faults, _ := w.Locker(lockcore.Options{})
	living, _, _ := w.Locker(lockcore.Options{})
	operator, _, _ := w.Locker(lockcore.Options{})
	other, _, _ := w.Locker(lockcore.Options{})
	control := redistest.NewControl(t)
	terms := lockcore.Terms{Lease: 10 * time.Second}
	dead := w.Must(l.Acquire(t.Context(), "dead", terms))
	alive := w.Must(living.Acquire(t.Context(), "alive", terms))
	faults.Silence()
	start := time.Now()
	ends := make(chan error, 1)
	force := func(key string) error {
		seen, err := operator.Inspect(t.Context(), event.KindExclusive, key)
		ok(t, err)
		return operator.ForceClear(t.Context(), event.KindExclusive, key, seen)
	}
	go func() { ends <- force("alive") }()
	ok(t, force("dead"))
	next := w.Must(other.Acquire(t.Context(), "dead", noWait))
	if took := time.Since(start); took > 6*time.Second+500*time.Millisecond+control.Late(start) {
		t.Errorf("acquired after %v", took)
	}
	wantErr(t, "of a living holder", <-ends, lockcore.ErrAlive)
	ok(t, context.Cause(alive.Context()))
	if next.Token() <= dead.Token() {
		t.Errorf("token %d after %d", next.Token(), dead.Token())
	}
	faults.Heal()
	<-dead.Context().Done()
	wantErr(t, "the dead hold", dead.Release(t.Context()), lockcore.ErrLost)
	ok(t, next.Release(t.Context()))
	ok(t, alive.Release(t.Context()))
}
