package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

var forever = lockcore.Terms{Wait: lockcore.Forever}

// nest has one hold of "k" in a bubble, and makes nested calls of it.
type nest struct {
	*world

	l     *lockcore.Locker
	outer *lockcore.Lease
	fail  func() // Redis stops replying
	sent  func() int
	heard *locktest.Recorder
}

func inNest(t *testing.T, test func(t *testing.T, n *nest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &nest{world: newWorld(t), heard: new(locktest.Recorder)}
		l, faults, count := n.Locker(lockcore.Options{Observer: n.heard})
		n.l, n.fail = l, faults.Silence
		n.outer = n.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour}))
		count.Reset()
		n.sent = func() int { // without those of the watchdog and of the subscription for a hold older than a second
			return len(slices.DeleteFunc(count.Commands(), func(name string) bool {
				return name == "renew" || name == "subscribe" || name == "ping"
			}))
		}
		test(t, n)
	})
}

// outcome is the result of a nested call in the background.
type outcome struct {
	lease *lockcore.Lease
	err   error
	took  time.Duration
}

// call makes a nested call in the background. It returns when that call has returned or waits.
func (n *nest) call(ctx context.Context, t lockcore.Terms) <-chan outcome {
	out, start := make(chan outcome, 1), time.Now()
	go func() {
		le, err := n.l.Acquire(ctx, "k", t)
		out <- outcome{le, err, time.Since(start)}
	}()
	synctest.Wait()
	return out
}

func (n *nest) waits(who string, c <-chan outcome) {
	n.T.Helper()
	synctest.Wait()
	if len(c) > 0 {
		n.T.Errorf("%s does not wait: %v", who, (<-c).err)
	}
}

// enters returns the lease of a call that must have returned with one.
func (n *nest) enters(who string, c <-chan outcome) *lockcore.Lease {
	n.T.Helper()
	synctest.Wait()
	select {
	case o := <-c:
		if o.err != nil {
			n.T.Fatalf("%s: %v", who, o.err)
		}
		return o.lease
	default:
		n.T.Fatalf("%s waits", who)
		return nil
	}
}

func releaseAll(t *testing.T, leases ...*lockcore.Lease) {
	t.Helper()
	for _, le := range leases {
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Goroutines make nested calls with the ctx of one handler. The calls run one at a time, so a
// counter without a mutex is exact, and the race detector reports nothing.
// Shows: N1
func TestNestedCallsRunAlone(t *testing.T) {
	const goroutines = 20
	rounds := testlevel.Pick(t, 100, 1000, 1000)
	l := bare(t, lockcore.Options{})
	defer drop(l)
	outer, err := l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		var wg sync.WaitGroup
		counter := 0
		for range goroutines {
			wg.Go(func() {
				le, err := l.Acquire(outer.Context(), "k", forever)
				if err != nil {
					t.Error(err)
					return
				}
				seen := counter
				runtime.Gosched()
				counter = seen + 1
				_ = le.Release(t.Context())
			})
		}
		wg.Wait()
		if counter != goroutines {
			t.Fatalf("round %d: the counter is %d after %d nested runs", round, counter, goroutines)
		}
	}
	releaseAll(t, outer)
}

// A nested call is made while another one of the same entry is open. Its Wait decides how it ends,
// see type entry.
// Shows: N1
func TestNestedSibling(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		ctx := n.outer.Context()
		first := n.Must(n.l.Acquire(ctx, "k", noWait))
		inside := n.Must(n.l.Acquire(first.Context(), "k", noWait)) // with the ctx of the innermost entry it does not wait
		for name, ctx := range map[string]context.Context{"the outer ctx": ctx, "that of the first": first.Context()} {
			_, err := n.l.Acquire(ctx, "k", noWait)
			var busy *lockcore.BusyError
			if !errors.As(err, &busy) || !busy.Nested || !errors.Is(err, lockcore.ErrNotRun) ||
				!strings.Contains(err.Error(), "held by a nested call of this hold") {
				t.Errorf("%s, NoWait: %v", name, err)
			}
		}
		if _, err := n.l.Acquire(ctx, "k", lockcore.Terms{Wait: -7}); !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "Terms.Wait") {
			t.Errorf("a Wait of -7: %v, want an error that names Terms.Wait", err)
		}
		start := time.Now()
		_, err := n.l.Acquire(ctx, "k", lockcore.Terms{}) // the default Wait of 2 s
		busy, _ := errors.AsType[*lockcore.BusyError](err)
		if d := time.Since(start); d != 2*time.Second || busy == nil || !busy.Nested || busy.Waited != d || busy.HeldFor != d || busy.Queue != 1 {
			t.Errorf("refused after %v: %v, %+v", d, err, busy)
		}
		second, third := n.call(ctx, forever), n.call(ctx, lockcore.Terms{Wait: time.Minute})
		deep := n.call(first.Context(), forever) // it waits only for inside
		n.waits("second", second)
		releaseAll(t, inside)
		deepest := n.enters("a sibling of inside", deep)
		n.waits("second", second)
		releaseAll(t, deepest)
		n.waits("second", second)
		releaseAll(t, first)
		le := n.enters("second", second)
		n.waits("third", third)
		if fresh := n.call(ctx, noWait); (<-fresh).err == nil {
			t.Error("a new call got the key before the waiters")
		}
		releaseAll(t, le)
		releaseAll(t, n.enters("third", third))
		releaseAll(t, n.Must(n.l.Acquire(ctx, "k", noWait))) // the previous call has ended, so it does not wait
		if sent := n.sent(); sent != 0 {
			t.Errorf("%d commands", sent)
		}
		releaseAll(t, n.outer)
	})
}

// A ctx that carries the innermost entry of the key enters, also if it carries holds of other keys.
func TestNestedOverOtherKeys(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		other := n.Must(n.l.Acquire(n.outer.Context(), "other", noWait))
		inner := n.Must(n.l.Acquire(other.Context(), "k", noWait))
		if _, err := n.l.Acquire(other.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a sibling: %v, want ErrBusy", err)
		}
		once, _, err := n.l.Claim(inner.Context(), "k", lockcore.Claim{Terms: noWait})
		if err != nil {
			t.Fatal(err)
		}
		deep := n.Must(n.l.Acquire(once.Context(), "k", noWait))
		if _, _, err := n.l.Claim(deep.Context(), "k", lockcore.Claim{}); !errors.Is(err, lockcore.ErrNested) {
			t.Errorf("a nested claim: %v", err)
		}
		for _, le := range []*lockcore.Lease{n.outer, inner, deep} {
			if h, ok := access.HoldOf(le.Context(), "k"); le != deep && (!ok || h.Token != n.outer.Token()) || le == deep && h.Token != once.Token() && h.Token != n.outer.Token() {
				t.Errorf("token %d, held %v", h.Token, ok)
			}
		}
		releaseAll(t, deep, once, inner, other, n.outer)
	})
}

// The ctx of a nested lease ends with its release, with the hold, or with the ctx of the call.
func TestNestedContext(t *testing.T) {
	type key struct{}
	for name, end := range map[string]struct {
		do    func(n *nest, inner *lockcore.Lease, cancel context.CancelFunc)
		cause error
	}{
		"released":    {func(n *nest, inner *lockcore.Lease, _ context.CancelFunc) { releaseAll(n.T, inner) }, lockcore.ErrReleased},
		"lost":        {func(_ *nest, inner *lockcore.Lease, _ context.CancelFunc) { locktest.Lose(inner.Context()) }, lockcore.ErrLost},
		"by the call": {func(_ *nest, _ *lockcore.Lease, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		for _, asked := range []bool{true, false} { // whether the test reads the ctx before it ends
			for _, cut := range []bool{true, false} {
				t.Run(fmt.Sprint(name, "/asked before ", asked, "/cut ", cut), func(t *testing.T) {
					inNest(t, func(t *testing.T, n *nest) {
						from := context.WithValue(n.outer.Context(), key{}, "v")
						if cut {
							from = context.WithoutCancel(from)
						}
						from, cancel := context.WithCancel(from)
						defer cancel()
						inner := n.Must(n.l.Acquire(from, "k", noWait))
						ctx := inner.Context()
						if asked && (ctx.Err() != nil || context.Cause(ctx) != nil) {
							t.Error(context.Cause(ctx))
						}
						if _, ok := ctx.Deadline(); ok || ctx.Value(key{}) != "v" {
							t.Error("the ctx has a deadline, or lacks the value of the ctx of the call")
						}
						derived, stop := context.WithCancel(ctx)
						defer stop()
						end.do(n, inner, cancel)
						<-derived.Done()
						if ctx.Err() == nil || !errors.Is(context.Cause(ctx), end.cause) || !errors.Is(context.Cause(derived), end.cause) {
							t.Errorf("the causes are %v, %v", context.Cause(ctx), context.Cause(derived))
						}
						if err := inner.Release(t.Context()); name == "released" && !errors.Is(err, lockcore.ErrReleased) {
							t.Errorf("a second release: %v, want ErrReleased", err)
						}
						_ = n.outer.Release(t.Context())
					})
				})
			}
		}
	}
}

// A run has ended, and a call has its ctx. The call counts as one with the ctx of the nearest open
// entry. Without an open entry the ctx holds nothing.
func TestNestedAfterRelease(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		a := n.Must(n.l.Acquire(n.outer.Context(), "k", noWait))
		b := n.Must(n.l.Acquire(a.Context(), "k", noWait))
		sibling, outer := n.call(context.WithoutCancel(a.Context()), forever), n.call(n.outer.Context(), forever)
		derived := n.call(a.Context(), forever)
		releaseAll(t, a) // b continues inside the outer run, and all calls wait for it
		n.waits("the sibling of b", sibling)
		if err := context.Cause(b.Context()); err != nil {
			t.Errorf("the ctx of b has ended: %v", err)
		}
		if _, err := n.l.Acquire(a.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a call while b runs: %v, want ErrBusy", err)
		}
		releaseAll(t, b)
		if o := <-derived; !errors.Is(o.err, lockcore.ErrReleased) || !errors.Is(o.err, lockcore.ErrNotRun) {
			t.Errorf("the last run under its ctx has returned: %v, want ErrReleased", o.err)
		}
		c := n.enters("in the order of arrival: the sibling of b", sibling)
		n.waits("the call with the outer ctx", outer)
		releaseAll(t, c)
		releaseAll(t, n.enters("the call with the outer ctx", outer))
		d := n.Must(n.l.Acquire(b.Context(), "k", noWait))
		if _, ok := access.HoldOf(a.Context(), "k"); !ok {
			t.Error("the hold has not ended, but HoldOf with the ctx of a returns none")
		}
		queued := n.call(context.WithoutCancel(n.outer.Context()), forever)
		refused := n.call(n.outer.Context(), forever)
		releaseAll(t, n.outer) // d continues; the other calls compete for the key
		for name, ctx := range map[string]context.Context{"outer": n.outer.Context(), "a": a.Context(), "b": b.Context()} {
			if _, ok := access.HoldOf(ctx, "k"); ok {
				t.Errorf("%s still has a token", name)
			}
			if _, err := n.l.Acquire(context.WithoutCancel(ctx), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("a call with the ctx of %s: %v, want ErrBusy", name, err)
			}
		}
		if _, ok := access.HoldOf(d.Context(), "k"); !ok {
			t.Error("d has no token")
		}
		n.waits("the queued call", queued)
		n.waits("the call with the outer ctx", refused)
		releaseAll(t, d)
		if o := <-refused; !errors.Is(o.err, lockcore.ErrReleased) || !errors.Is(o.err, lockcore.ErrNotRun) {
			t.Errorf("the ctx of the call has ended: %v, want ErrReleased", o.err)
		}
		le := (<-queued).lease
		if le == nil || le.Token() <= n.outer.Token() {
			t.Errorf("the queued call got %v, want its own hold", le)
		}
		releaseAll(t, le)
	})
}

// Two runs, one inside the other, are released at the same time. The ctx of both end, whichever
// release is first.
func TestNestedReleasedTogether(t *testing.T) {
	l := bare(t, lockcore.Options{})
	defer drop(l)
	outer, err := l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for round := range testlevel.Pick(t, 1000, 5000, 20000) {
		around, err := l.Acquire(outer.Context(), "k", noWait)
		if err != nil {
			t.Fatal(err)
		}
		inside, err := l.Acquire(around.Context(), "k", noWait)
		if err != nil {
			t.Fatal(err)
		}
		both := []*lockcore.Lease{around, inside}
		var wg sync.WaitGroup
		for _, le := range both {
			_ = le.Context().Done()
			wg.Go(func() { _ = le.Release(t.Context()) })
		}
		wg.Wait()
		for i, le := range both {
			if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrReleased) {
				t.Fatalf("round %d, run %d: its ctx has not ended: %v", round, i, err)
			}
		}
	}
	releaseAll(t, outer)
}

// A run returns before the run inside it, and then the lease is lost. The ctx of the first run ends
// too, also if it is not derived from the ctx of the hold.
func TestNestedLostAfterRelease(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		around := n.Must(n.l.Acquire(context.WithoutCancel(n.outer.Context()), "k", noWait))
		_ = around.Context().Done()
		inside := n.Must(n.l.Acquire(around.Context(), "k", noWait))
		releaseAll(t, around)
		if err := context.Cause(around.Context()); err != nil {
			t.Errorf("before the loss: %v", err)
		}
		locktest.Lose(n.outer.Context())
		if err := context.Cause(around.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("after the loss: %v", err)
		}
		_ = inside.Release(t.Context())
		_ = n.outer.Release(t.Context())
	})
}

// ownDone is a ctx that context cannot recognize: it registers a child by AfterFunc, and stop runs
// while a child is canceled.
type ownDone struct {
	context.Context //nolint:containedctx // ownDone is a ctx itself

	done chan struct{}
	stop func()
}

func (o ownDone) Done() <-chan struct{}        { return o.done }
func (ownDone) Err() error                     { return nil }
func (o ownDone) AfterFunc(func()) func() bool { return func() bool { o.stop(); return true } }

// No run enters a nested run whose ctx is being canceled by its release.
func TestNestedEnterDuringRelease(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		var run *lockcore.Lease
		tried := false
		from := ownDone{n.outer.Context(), make(chan struct{}), func() {
			tried = true
			if le, err := n.l.Acquire(run.Context(), "k", noWait); err == nil {
				t.Errorf("a nested call entered a run whose ctx has ended: %v", context.Cause(le.Context()))
				_ = le.Release(t.Context())
			}
		}}
		run = n.Must(n.l.Acquire(from, "k", noWait))
		_ = run.Context().Done()
		releaseAll(t, run)
		if !tried {
			t.Error("the ctx was not canceled")
		}
		releaseAll(t, n.Must(n.l.Acquire(n.outer.Context(), "k", noWait)), n.outer)
	})
}

// valuesOf is a ctx with the values of another one.
type valuesOf struct {
	context.Context //nolint:containedctx // valuesOf is a ctx itself

	values context.Context //nolint:containedctx // the other one
}

func (v valuesOf) Value(key any) any { return v.values.Value(key) }

// A call has the values of a nested run of an earlier hold. The key is handed off to it without a
// deadlock.
func TestNestedValuesInHandOff(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		same := lockcore.Terms{Lease: time.Hour, Wait: lockcore.Forever} // the same lease as that of the outer hold, so the key is handed off
		old := n.Must(n.l.Acquire(n.outer.Context(), "k", noWait))
		second := n.call(t.Context(), same)
		releaseAll(t, old, n.outer)
		holder := n.enters("the second", second)
		third := n.call(valuesOf{t.Context(), old.Context()}, same)
		n.waits("the third", third)
		releaseAll(t, holder)
		releaseAll(t, n.enters("the third", third))
	})
}

// A waiting nested call returns an error when its hold is lost or the Locker is closed. If its ctx
// is without cancellation, it competes for the key after a loss like any other call.
// Shows: N2
func TestNestedWaiterReturns(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(n *nest)
		want error
	}{
		"lost":   {func(n *nest) { locktest.Lose(n.outer.Context()) }, lockcore.ErrLost},
		"silent": {func(n *nest) { n.fail() }, lockcore.ErrLost},
		"closed": {func(n *nest) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = n.l.Close(ctx)
		}, nil},
	} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/cut ", cut), func(t *testing.T) {
				inNest(t, func(t *testing.T, n *nest) {
					ctx := n.outer.Context()
					if cut {
						ctx = context.WithoutCancel(ctx)
					}
					inner := n.Must(n.l.Acquire(n.outer.Context(), "k", noWait))
					deep := n.Must(n.l.Acquire(inner.Context(), "k", noWait))
					var waiters []<-chan outcome
					for range 3 {
						waiters = append(waiters, n.call(ctx, forever))
					}
					bounded := n.call(ctx, lockcore.Terms{Wait: time.Minute})
					test.end(n)
					<-inner.Context().Done()
					if o := <-bounded; cut && name == "lost" { // it knows that no nested call is before it
						if busy, ok := errors.AsType[*lockcore.BusyError](o.err); !ok || busy.Nested || busy.Waited != time.Minute {
							t.Errorf("the bounded call: %v", o.err)
						}
					}
					synctest.Wait()
					for _, c := range waiters {
						switch {
						case test.want == nil: // the Locker ends the call first, then the loss
							if o := <-c; !errors.Is(o.err, lockcore.ErrClosed) && !errors.Is(o.err, lockcore.ErrGivenUp) {
								t.Errorf("a waiter: %v", o.err)
							}
						case !cut:
							if o := <-c; !errors.Is(o.err, test.want) || !errors.Is(o.err, lockcore.ErrNotRun) {
								t.Errorf("a waiter: %v", o.err)
							}
						case len(c) > 0:
							t.Errorf("the call does not compete: %v", (<-c).err)
						}
					}
					if cut && name == "lost" { // the key is free when the last run has returned
						for _, le := range []*lockcore.Lease{deep, inner, n.outer} {
							if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
								t.Error(err)
							}
						}
						var wg sync.WaitGroup
						for _, c := range waiters { // in any order
							wg.Go(func() { releaseAll(t, (<-c).lease) })
						}
						wg.Wait()
						return
					}
					if cut && name == "silent" {
						ended, cancel := context.WithCancel(context.Background())
						cancel()
						_ = n.l.Close(ended)
						for _, c := range waiters {
							if o := <-c; !errors.Is(o.err, lockcore.ErrClosed) {
								t.Errorf("a waiter: %v, want ErrClosed", o.err)
							}
						}
					}
					for _, le := range []*lockcore.Lease{deep, inner, n.outer} {
						_ = le.Release(t.Context())
					}
				})
			})
		}
	}
}

// After Close only nested calls that do not wait enter.
// Shows: N2
func TestNestedDuringClose(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		inner := n.Must(n.l.Acquire(n.outer.Context(), "k", noWait))
		closed := make(chan error, 1)
		waiter := n.call(n.outer.Context(), forever)
		go func() { closed <- n.l.Close(t.Context()) }()
		if o := <-waiter; !errors.Is(o.err, lockcore.ErrClosed) {
			t.Errorf("the call that waits: %v, want ErrClosed", o.err)
		}
		if _, err := n.l.Acquire(n.outer.Context(), "k", forever); !errors.Is(err, lockcore.ErrClosed) {
			t.Errorf("a call that would have to wait: %v, want ErrClosed", err)
		}
		deep := n.Must(n.l.Acquire(inner.Context(), "k", noWait))
		releaseAll(t, deep, inner, n.outer)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// A nested call is canceled. It leaves its queue, at any position, and the others keep their order.
// Shows: N2
func TestNestedCancel(t *testing.T) {
	for gone := range 4 {
		inNest(t, func(t *testing.T, n *nest) {
			inner := n.Must(n.l.Acquire(n.outer.Context(), "k", noWait))
			var waiters [4]<-chan outcome
			var cancels [4]context.CancelCauseFunc
			for i := range waiters {
				var ctx context.Context
				ctx, cancels[i] = context.WithCancelCause(n.outer.Context())
				defer cancels[i](nil)
				waiters[i] = n.call(ctx, forever)
			}
			errGone := errors.New("gone")
			cancels[gone](errGone)
			if o := <-waiters[gone]; !errors.Is(o.err, errGone) || !errors.Is(o.err, lockcore.ErrBusy) || strings.Contains(o.err.Error(), "\n") {
				t.Errorf("canceled: %v", o.err)
			}
			if _, err := n.l.Acquire(canceledFrom(n.outer.Context()), "k", forever); !errors.Is(err, context.Canceled) || !errors.Is(err, lockcore.ErrNotRun) {
				t.Errorf("canceled before: %v", err)
			}
			releaseAll(t, inner)
			for i, c := range waiters {
				if i != gone {
					releaseAll(t, n.enters(fmt.Sprint(i), c))
				}
			}
			releaseAll(t, n.outer)
		})
	}
}

func canceledFrom(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// A call gives up at the moment of its turn. The turn is passed on: no run is lost, and none stays
// open.
func TestNestedTurnMeetsCancel(t *testing.T) {
	l := bare(t, lockcore.Options{})
	defer drop(l)
	outer, err := l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range testlevel.Pick(t, 200, 2000, 20_000) {
		var wg sync.WaitGroup
		inside := 0
		for i := range 4 {
			ctx, cancel := context.WithCancel(outer.Context())
			wg.Go(func() {
				defer cancel()
				le, err := l.Acquire(ctx, "k", forever)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				inside++
				_ = le.Release(t.Context())
			})
			if i%2 == 0 {
				wg.Go(cancel)
			}
		}
		wg.Wait()
		if inside < 2 {
			t.Fatalf("%d calls have run, want at least 2", inside)
		}
		le, err := l.Acquire(outer.Context(), "k", noWait)
		if err != nil {
			t.Fatalf("a run stayed open: %v", err)
		}
		releaseAll(t, le)
	}
	releaseAll(t, outer)
}

// Goroutines inside a nested call exclude each other. If the lease is lost or the Locker is closed
// meanwhile, all of them return.
// Shows: N2
func TestNestedFanOut(t *testing.T) {
	for name, end := range map[string]func(*nest){
		"nothing": func(*nest) {},
		"loss":    func(n *nest) { locktest.Lose(n.outer.Context()) },
		"close": func(n *nest) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = n.l.Close(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inNest(t, func(t *testing.T, n *nest) {
				var wg sync.WaitGroup
				var mu sync.Mutex
				ran, refused, inside := 0, 0, 0
				var fan func(ctx context.Context, depth int)
				fan = func(ctx context.Context, depth int) {
					var here sync.WaitGroup
					for range 3 {
						here.Go(func() {
							le, err := n.l.Acquire(ctx, "k", forever)
							mu.Lock()
							defer mu.Unlock()
							if err != nil {
								refused++
								return
							}
							if inside++; ran == 20 {
								end(n)
							}
							ran++
							mu.Unlock()
							time.Sleep(time.Millisecond)
							if depth > 0 {
								fan(le.Context(), depth-1)
							}
							mu.Lock()
							inside--
							_ = le.Release(t.Context())
						})
					}
					here.Wait()
				}
				wg.Go(func() { fan(n.outer.Context(), 3) })
				wg.Wait()
				if all := 3 + 9 + 27 + 81; name == "nothing" && ran != all || name != "nothing" && (refused == 0 || ran < 20) || inside != 0 {
					t.Errorf("%d ran, %d refused, %d inside", ran, refused, inside)
				}
				_ = n.outer.Release(t.Context())
			})
		})
	}
}

// A nested call waits for more than 2 s. The Observer gets one event for it, and none for other
// nested calls.
func TestNestedWaitingEvent(t *testing.T) {
	inNest(t, func(t *testing.T, n *nest) {
		inner := n.Must(n.l.Acquire(n.outer.Context(), "k", noWait))
		short := n.call(n.outer.Context(), lockcore.Terms{Wait: time.Second})
		c := n.call(n.outer.Context(), forever)
		time.Sleep(1999 * time.Millisecond)
		synctest.Wait()
		if got := locktest.EventsOf[event.Waiting](n.heard); len(got) > 0 {
			t.Errorf("early: %+v", got)
		}
		time.Sleep(time.Minute)
		got := locktest.EventsOf[event.Waiting](n.heard)
		if len(got) != 1 || !got[0].Nested || got[0].Holder.Host == "" || got[0].Queue != 1 {
			t.Errorf("the events are %+v", got)
		}
		if (<-short).err == nil {
			t.Error("the call with a Wait of 1s was not refused")
		}
		releaseAll(t, inner)
		releaseAll(t, n.enters("after a minute", c), n.outer)
	})
}

// An Observer panics while a nested call waits. The call leaves its queue.
func TestNestedObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{Observer: panicsOn[event.Waiting]{}})
		outer := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour}))
		inner := w.Must(l.Acquire(outer.Context(), "k", noWait))
		func() {
			defer func() {
				if recover() == nil {
					t.Skip("a panic of an Observer does not reach the caller")
				}
			}()
			_, _ = l.Acquire(outer.Context(), "k", lockcore.Terms{Wait: time.Minute})
		}()
		releaseAll(t, inner)
		releaseAll(t, w.Must(l.Acquire(outer.Context(), "k", noWait)), outer)
	})
}

// A call inside a handler has another ctx than that of the handler. Its error says that a call of
// this process has the key. A call of another process gets no such text.
func TestForgottenContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		const hint = "another call of this process"
		for _, wait := range []time.Duration{lockcore.NoWait, time.Second} {
			_, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait})
			if busy, ok := errors.AsType[*lockcore.BusyError](err); !ok || !busy.Local || busy.Nested || !strings.Contains(err.Error(), hint) {
				t.Errorf("%v: %v", wait, err)
			}
			_, err = other.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait})
			if busy, ok := errors.AsType[*lockcore.BusyError](err); !ok || busy.Local || strings.Contains(err.Error(), hint) {
				t.Errorf("another Locker, %v: %v", wait, err)
			}
		}
		releaseAll(t, le)
	})
}
