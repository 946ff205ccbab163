package tracing_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// canary is part of each key in these tests and occurs nowhere else.
const canary = "canary-7f3a"

// inBubble runs test on a Locker with an Observer, whose Redis is in memory. After that each span
// has ended, no lease is counted as held, and the telemetry contains neither the canary nor the
// task or the host.
func inBubble(t *testing.T, test func(t *testing.T, r *rig, m *redistest.Memory, locks *lockcore.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, m := newRig(t, tracing.Options{}), redistest.Bubble(t)
		locks, err := lockcore.New(m.Client(t), lockcore.Options{Observer: r.Observer, NoGroups: true})
		if err != nil {
			t.Fatal(err)
		}
		test(t, r, m, locks)
		if err := locks.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		time.Sleep(time.Second) // a go-redis subscription sleeps 100 ms after an error before it notices that it is closed
		r.addsUp(t)
		host, err := os.Hostname()
		if err != nil || len(host) < 4 { // too short to search for
			host = "no host"
		}
		out := r.exported(t)
		for _, secret := range []string{canary, "task-9", "127.0.0.1", host} {
			if strings.Contains(out, secret) {
				t.Errorf("%q is exported", secret)
			}
		}
	})
}

func TestAWaiterLinksToItsHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *redistest.Memory, locks *lockcore.Locker) {
		const key = "account:" + canary
		var wg sync.WaitGroup
		holding := make(chan struct{})
		wg.Go(func() {
			ctx := lockcore.WithTask(t.Context(), "task-9")
			_ = guard.Exclusive(ctx, locks, key, lockcore.Terms{Name: "holder"}, func(context.Context) error {
				close(holding)
				time.Sleep(time.Second)
				return nil
			})
		})
		<-holding
		err := guard.Exclusive(t.Context(), locks, key, lockcore.Terms{Name: "waiter", Wait: time.Minute}, func(context.Context) error {
			if n := r.count(t, "holdfast.lease.held", "holdfast.name", "waiter"); n != 1 {
				t.Errorf("held while it runs: %d, want 1", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		holder, waiter, acquire := r.span(t, "exclusive holder"), r.span(t, "exclusive waiter"), r.span(t, "acquire")
		for _, links := range [][]traceLink{linksOf(waiter), linksOf(acquire)} {
			if len(links) != 1 || links[0].trace != holder.SpanContext.TraceID() || links[0].span != holder.SpanContext.SpanID() {
				t.Errorf("links are %v, want one to the holder %v", links, holder.SpanContext)
			}
		}
		a := attrs(waiter)
		wait, _ := a["holdfast.wait.duration"].(float64)
		if wait < 0.9 || wait > 1.2 || a["holdfast.contended"] != true || a["holdfast.queue.length"] != int64(1) {
			t.Errorf("waiter: %v, want a contended wait of 1 s in a queue of 1", a)
		}
		if acquire.Parent.SpanID() != waiter.SpanContext.SpanID() || !acquire.EndTime.Before(waiter.EndTime.Add(time.Nanosecond)) {
			t.Errorf("acquire is not within the waiter's span")
		}
		if a := attrs(holder); a["holdfast.contended"] != false || a["holdfast.hold.duration"].(float64) < 1 { //nolint:errcheck,forcetypeassert // a test
			t.Errorf("holder: %v", a)
		}
		if n := r.count(t, "holdfast.contentions"); n != 1 {
			t.Errorf("contentions is %d, want 1", n)
		}
	})
}

func TestReplayAndRefusalsEndWithTheirOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *redistest.Memory, locks *lockcore.Locker) {
		const key = "charge:" + canary
		once := func(ctx context.Context, key, name string, o guard.OnceOptions, fn func(context.Context) error) {
			o.Terms = lockcore.Terms{Name: name, Wait: lockcore.NoWait}
			_, _ = guard.Once(ctx, locks, key, o, fn)
		}
		nothing := func(context.Context) error { return nil }
		once(t.Context(), key, "first", guard.OnceOptions{Fingerprint: []byte("a")}, func(ctx context.Context) error {
			once(guard.Detach(ctx), key, "beside", guard.OnceOptions{Fingerprint: []byte("a")}, nothing)
			return nil
		})
		once(t.Context(), key, "again", guard.OnceOptions{Fingerprint: []byte("a")}, nothing)
		once(t.Context(), key, "other", guard.OnceOptions{Fingerprint: []byte("b")}, nothing)
		func() {
			defer func() { _ = recover() }()
			once(t.Context(), key+"/most", "panics", guard.OnceOptions{Mode: guard.AtMostOnce}, func(context.Context) error { panic("boom") })
		}()
		once(t.Context(), key+"/most", "after", guard.OnceOptions{Mode: guard.AtMostOnce}, nothing)
		for name, want := range map[string]string{
			"first": "completed", "beside": "busy", "again": "replayed", "other": "mismatch", "panics": "unknown", "after": "abandoned",
		} {
			s := r.span(t, "once "+name)
			if got := attrs(s)["holdfast.outcome"]; got != want {
				t.Errorf("%s: outcome is %v, want %s", name, got, want)
			}
			if n := r.count(t, "holdfast.acquisitions", "holdfast.name", name, "holdfast.outcome", want); n != 1 {
				t.Errorf("%s: acquisitions is %d, want 1", name, n)
			}
		}
		// A call that is refused without a wait also has a link to the holder.
		if links := linksOf(r.span(t, "once beside")); len(links) != 1 || links[0].span != r.span(t, "once first").SpanContext.SpanID() {
			t.Errorf("beside: links are %v", links)
		}
		if links := linksOf(r.span(t, "once after")); len(links) != 1 || links[0].span != r.span(t, "once panics").SpanContext.SpanID() {
			t.Errorf("after: links are %v", links)
		}
	})
}

func TestALostLeaseIsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, m *redistest.Memory, locks *lockcore.Locker) {
		err := guard.Exclusive(t.Context(), locks, "account:"+canary, lockcore.Terms{Name: "account"}, func(ctx context.Context) error {
			m.Redis.FlushAll()
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		if !errors.Is(err, lockcore.ErrLost) {
			t.Fatalf("err is %v, want ErrLost", err)
		}
		s := r.span(t, "exclusive account")
		a := attrs(s)
		if a["holdfast.outcome"] != "lost" || a["holdfast.cause"] != "lost" || a["error.type"] != "lost" || s.Status.Code != codes.Error {
			t.Errorf("span: %v with status %v", a, s.Status)
		}
		if gone := r.count(t, "holdfast.renewals", "holdfast.result", "gone"); gone != 1 {
			t.Errorf("renewals with result gone: %d, want 1", gone)
		}
		if n := r.count(t, "holdfast.lease.lost", "holdfast.cause", "lost"); n != 1 {
			t.Errorf("lease.lost is %d, want 1", n)
		}
	})
}

func TestAnOutageShowsAtEachStep(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, m *redistest.Memory, locks *lockcore.Locker) {
		_ = guard.Exclusive(t.Context(), locks, "account:"+canary, lockcore.Terms{Name: "running"}, func(ctx context.Context) error {
			m.Redis.SetError("LOADING dataset")
			_ = guard.Exclusive(t.Context(), locks, "b:"+canary, lockcore.Terms{Name: "starting"}, func(context.Context) error { return nil })
			<-ctx.Done()
			m.Redis.SetError("")
			return nil
		})
		starting, running := r.span(t, "exclusive starting"), r.span(t, "exclusive running")
		if a := attrs(starting); a["holdfast.outcome"] != "unavailable" || a["error.type"] != "unavailable" {
			t.Errorf("starting: %v", a)
		}
		failures, _ := attrs(running)["holdfast.renewal_errors"].(int64)
		if failures == 0 || r.count(t, "holdfast.renewals", "holdfast.result", "failed") != failures {
			t.Errorf("renewal errors: %d on the span, %d counted", failures, r.count(t, "holdfast.renewals", "holdfast.result", "failed"))
		}
		if len(running.Events) != 2 || running.Events[0].Name != "holdfast.renewal_failed" || running.Events[1].Name != "holdfast.lost" {
			t.Errorf("running: events %v, want holdfast.renewal_failed once, then holdfast.lost", running.Events)
		}
	})
}

// A nested call on a key that ctx holds is part of the same run: it has no span and is not counted.
func TestReentryIsNotASecondRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *redistest.Memory, locks *lockcore.Locker) {
		terms := lockcore.Terms{Name: "account"}
		err := guard.Exclusive(t.Context(), locks, "account:"+canary, terms, func(ctx context.Context) error {
			return guard.Exclusive(ctx, locks, "account:"+canary, terms, func(context.Context) error {
				time.Sleep(time.Minute) // long enough for several renewals
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		renewals, _ := attrs(r.span(t, "exclusive account"))["holdfast.renewals"].(int64)
		if renewals < 4 || r.count(t, "holdfast.renewals", "holdfast.result", "kept") != renewals {
			t.Errorf("renewals: %d on the span, want the same counted and at least 4", renewals)
		}
	})
}

// Many calls compete for few keys, and some time out. No span stays open, and the counts agree.
func TestTheNumbersAddUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *redistest.Memory, locks *lockcore.Locker) {
		const calls = 60
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%5)*310*time.Millisecond) // does not end at the moment of a release
				defer cancel()
				key := canary + string(rune('a'+i%4))
				_ = guard.Exclusive(ctx, locks, key, lockcore.Terms{Name: "many", Wait: 1050 * time.Millisecond}, func(context.Context) error {
					time.Sleep(100 * time.Millisecond)
					return nil
				})
			})
		}
		wg.Wait()
		all := r.count(t, "holdfast.acquisitions")
		ran, busy := r.count(t, "holdfast.acquisitions", "holdfast.outcome", "completed"), r.count(t, "holdfast.acquisitions", "holdfast.outcome", "busy")
		if all != calls || ran+busy != calls || ran < 10 || busy < 10 {
			t.Errorf("%d calls: %d ran and %d were busy, of %v", calls, ran, busy, r.points(t, "holdfast.acquisitions"))
		}
		if holds := r.count(t, "holdfast.hold.duration"); holds != ran {
			t.Errorf("%d ran, but hold.duration has %d", ran, holds)
		}
		if waits := r.count(t, "holdfast.wait.duration"); waits != calls {
			t.Errorf("wait.duration has %d of %d", waits, calls)
		}
	})
}

// A handler that returns an error, panics, or calls runtime.Goexit has failed, under each
// decorator. One that returns nil has completed.
func TestAFailedHandlerIsNotCompleted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *redistest.Memory, locks *lockcore.Locker) {
		handlers := map[string]func(context.Context) error{
			"completed _":     func(context.Context) error { return nil },
			"failed _OTHER":   func(context.Context) error { return errors.New("no such account") },
			"failed timeout":  func(context.Context) error { return context.DeadlineExceeded },
			"failed canceled": func(context.Context) error { return guard.NoEffect(context.Canceled) },
			"failed panic":    func(context.Context) error { panic("boom") },
			"failed recorded": func(context.Context) error { return guard.Final(&guard.RecordedError{}) },
		}
		for want, fn := range handlers {
			for kind, run := range map[string]func(key string, t lockcore.Terms){
				"exclusive": func(key string, terms lockcore.Terms) { _ = guard.Exclusive(t.Context(), locks, key, terms, fn) },
				"once": func(key string, terms lockcore.Terms) {
					_, _ = guard.Once(t.Context(), locks, key, guard.OnceOptions{Terms: terms}, fn)
				},
			} {
				func() {
					defer func() { _ = recover() }()
					run("k:"+canary+want, lockcore.Terms{Name: want})
				}()
				outcome, class, _ := strings.Cut(want, " ")
				a := attrs(r.span(t, kind+" "+want))
				if a["holdfast.outcome"] != outcome || outcome == "failed" && a["error.type"] != class {
					t.Errorf("%s %s: outcome %v, error.type %v", kind, want, a["holdfast.outcome"], a["error.type"])
				}
			}
		}
		// A nested call is part of the outer handler, whose result decides.
		err := guard.Exclusive(t.Context(), locks, "nest:"+canary, lockcore.Terms{Name: "nest"}, func(ctx context.Context) error {
			_ = guard.Exclusive(ctx, locks, "nest:"+canary, lockcore.Terms{Name: "nest"}, func(context.Context) error { return errors.New("handled") })
			return nil
		})
		if got := attrs(r.span(t, "exclusive nest"))["holdfast.outcome"]; err != nil || got != "completed" {
			t.Errorf("nested: %v, %v", got, err)
		}
	})
}

// A record that Redis does not confirm at once but stores later belongs to a completed run. No span
// has an error.
func TestALateRecordIsNoFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, m *redistest.Memory, locks *lockcore.Locker) {
		_, err := guard.Once(t.Context(), locks, "charge:"+canary, guard.OnceOptions{Terms: lockcore.Terms{Name: "charge"}}, func(context.Context) error {
			m.Redis.SetError("LOADING dataset")
			time.AfterFunc(3*time.Second, func() { m.Redis.SetError("") })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		run, complete := r.span(t, "once charge"), r.span(t, "complete")
		if attrs(run)["holdfast.outcome"] != "completed" || run.Status.Code != codes.Unset || len(run.Events) != 0 || complete.Status.Code != codes.Unset {
			t.Errorf("run: %v, %v, events %v; complete: %v", attrs(run), run.Status, run.Events, complete.Status)
		}
		if took := complete.EndTime.Sub(complete.StartTime); took < time.Second || took > 5*time.Second {
			t.Errorf("the record was stored after %v", took)
		}
		if n := r.count(t, "holdfast.completion.failed"); n != 0 {
			t.Errorf("completion.failed is %d, want 0", n)
		}
	})
}
