package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// granted returns a library that grants after a time, and cancels the ctx of its holder a time
// after the grant. 0 means that it never cancels.
func granted(after, told time.Duration) contend {
	return func(ctx context.Context, _ string) (context.Context, func() error, error) {
		if wait(ctx, after); ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		work, cancel := context.WithCancel(ctx)
		if told > 0 {
			time.AfterFunc(told, cancel)
		}
		return work, func() error { cancel(); return nil }, nil
	}
}

// find runs a trial for d and returns its finding.
func find(t *testing.T, tr *trial, d time.Duration) (f finding) {
	t.Helper()
	if tr.net == nil {
		tr.net = &link{}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go tr.run(ctx)
		time.Sleep(d)
		synctest.Wait()
		f = tr.find(time.Now())
		cancel()
		synctest.Wait()
	})
	return f
}

func inPartition(a, b contend) *trial {
	return &trial{point: point{Moment: partition}, after: 500 * time.Millisecond, a: a, b: b}
}

// If a library cancels the ctx of the holder a second late, the trial finds an overlap of a second.
func TestPartitionToldLate(t *testing.T) {
	f := find(t, inPartition(granted(0, 4*time.Second), granted(3*time.Second, 0)), 20*time.Second)
	if f.together != time.Second || f.told != time.Second || f.bAfter != 2500*time.Millisecond || f.untold || f.bNever || f.stuck != 0 {
		t.Errorf("got %+v", f)
	}
}

// If a library cancels the ctx early, the trial finds no overlap, and the margin.
func TestPartitionToldEarly(t *testing.T) {
	f := find(t, inPartition(granted(0, 2700*time.Millisecond), granted(3*time.Second, 0)), 20*time.Second)
	if f.together != 0 || f.told != -300*time.Millisecond || f.stuck != 300*time.Millisecond {
		t.Errorf("got %+v", f)
	}
}

// If a library never cancels the ctx, the overlap lasts until the end of the run.
func TestPartitionNeverTold(t *testing.T) {
	f := find(t, inPartition(granted(0, 0), granted(3*time.Second, 0)), 20*time.Second)
	if f.together != 17*time.Second || !f.untold || f.hasTold {
		t.Errorf("got %+v", f)
	}
}

// A waiter that is never served is found. A trial without the fault is inconclusive.
func TestPartitionInVain(t *testing.T) {
	if f := find(t, inPartition(granted(0, time.Second), granted(time.Hour, 0)), 20*time.Second); !f.bNever || f.together != 0 || f.stuck != 19*time.Second {
		t.Errorf("got %+v", f)
	}
	for why, tr := range map[string]*trial{
		"A had ended before":    inPartition(granted(0, 100*time.Millisecond), granted(3*time.Second, 0)),
		"A did not get the key": inPartition(granted(time.Hour, 0), granted(3*time.Second, 0)),
	} {
		if f := find(t, tr, 20*time.Second); f.inconclusive != why {
			t.Errorf("want %q, got %+v", why, f)
		}
	}
}

// If the ctx of A was canceled before B entered, there is no overlap, also if the goroutine of A
// runs later.
func TestTrialToldButNotYetRun(t *testing.T) {
	told, cancel := context.WithCancel(t.Context())
	tr := &trial{point: point{Moment: partition}}
	tr.enterA(told)
	tr.lose()
	cancel()
	tr.enterB()
	time.Sleep(2 * time.Millisecond)
	tr.leave(&tr.inA)
	if f := tr.find(time.Now()); f.together != 0 || f.told > 0 {
		t.Errorf("got %+v", f)
	}
}

// spring does what a connection does after it has lost a reply.
func spring(n *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sprung()
}

// losing returns a library whose call loses its reply. The call returns late, with err or with a
// grant.
func losing(n *link, late time.Duration, err error) contend {
	return func(ctx context.Context, key string) (context.Context, func() error, error) {
		spring(n)
		if wait(ctx, late); err != nil {
			return nil, nil, err
		}
		return granted(0, 0)(ctx, key)
	}
}

// A grant whose lost reply the library accepts while another caller has the key is an overlap. The
// key is stuck until the first caller runs.
func TestAcquireAnswerBelievedLate(t *testing.T) {
	n := &link{}
	f := find(t, &trial{point: point{Moment: loseAcquire}, net: n, a: losing(n, 1500*time.Millisecond, nil), b: granted(time.Second, 0)}, 20*time.Second)
	if f.together != 500*time.Millisecond || f.stuck != time.Second || f.said != "the key" || f.saidAfter != 1500*time.Millisecond {
		t.Errorf("got %+v", f)
	}
}

// An error is reported with its time, and is no overlap.
func TestAcquireError(t *testing.T) {
	n := &link{}
	f := find(t, &trial{point: point{Moment: loseAcquire}, net: n, a: losing(n, 5*time.Second, errors.New("x: i/o timeout")), b: granted(3*time.Second, 0)}, 20*time.Second)
	if f.together != 0 || f.stuck != 3*time.Second || f.phrase(f.saidAfter.Seconds()) != "error: i/o timeout after 5.00 s" {
		t.Errorf("got %+v", f)
	}
}

// A handler that continues although another caller has its key is an overlap. If it rightly
// continues, the result is "kept".
func TestRenewAnswerLost(t *testing.T) {
	renewing := func(n *link, told time.Duration) contend {
		return func(ctx context.Context, key string) (context.Context, func() error, error) {
			time.AfterFunc(time.Second, func() { spring(n) })
			return granted(0, told)(ctx, key)
		}
	}
	n := &link{}
	f := find(t, &trial{point: point{Moment: loseRenew}, net: n, a: renewing(n, 6*time.Second), b: granted(4*time.Second, 0)}, 20*time.Second)
	if f.together != 2*time.Second || f.said != "canceled" || f.saidAfter != 5*time.Second {
		t.Errorf("got %+v", f)
	}
	n = &link{}
	f = find(t, &trial{point: point{Moment: loseRenew}, net: n, a: renewing(n, 0), b: granted(10*time.Second+time.Millisecond, 0)}, 20*time.Second)
	if f.together != 0 || f.said != "kept" || f.stuck != time.Millisecond {
		t.Errorf("got %+v", f)
	}
}

// A key that stays stuck after its release is found, with the result of the release.
func TestReleaseAnswerLost(t *testing.T) {
	n := &link{}
	a := func(ctx context.Context, key string) (context.Context, func() error, error) {
		work, _, err := granted(0, 0)(ctx, key)
		return work, func() error { spring(n); time.Sleep(time.Second); return nil }, err
	}
	f := find(t, &trial{point: point{Moment: loseRelease}, net: n, a: a, b: granted(2*time.Second, 0)}, 20*time.Second)
	if f.together != 0 || f.stuck != 2*time.Second-shortWork || f.said != "nil" || f.saidAfter != time.Second {
		t.Errorf("got %+v", f)
	}
}

// sumUp keeps the worst figure and counts the overlaps. A round that showed nothing makes the cell
// doubtful.
func TestSumUp(t *testing.T) {
	var o outcome
	sumUp([]finding{
		{together: time.Second, said: "the key", saidAfter: time.Second}, {said: "the key", saidAfter: 3 * time.Second}, {said: "error: x", saidAfter: time.Second},
	}, &o)
	if o.Violations != 1 || o.Extra[togetherS+worstOf] != 1 || o.Extra[togetherS+medianOf] != 0 || o.Said != "2 × the key after 2.00 s; 1 × error: x after 1.00 s" {
		t.Errorf("got %+v", o)
	}
	if err := (result{Figures: o.Extra}).doubt(); err != nil {
		t.Error(err)
	}
	for want, f := range map[error]finding{errInconclusive: {inconclusive: "A had ended before"}, errNeverGranted: {bNever: true}} {
		o = outcome{}
		sumUp([]finding{{}, f}, &o)
		if err := (result{Library: holdfastName, Figures: o.Extra, Said: o.Said}).doubt(); !errors.Is(err, want) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// A figure that no round measured is not a number.
func TestSumUpNothing(t *testing.T) {
	var o outcome
	sumUp([]finding{{inconclusive: "x"}}, &o)
	if v := named(togetherS + worstOf)(result{Figures: o.Extra}); !math.IsNaN(v) {
		t.Errorf("got %v", v)
	}
	if got := brief(math.NaN()) + brief(0) + brief(-0.5) + brief(-0.001); got != "–0−0.50< 0.01" {
		t.Errorf("got %s", got)
	}
}

// A lower bound is marked: the median if half of the rounds did not end, and the worst figure if
// one did not.
func TestAtLeast(t *testing.T) {
	for n, want := range map[float64]string{0: "2.00 3.00", 1: "2.00 ≥ 3.00", 2: "≥ 2.00 ≥ 3.00"} {
		r := result{Figures: figures{conclusive: 4, untold: n, togetherS + medianOf: 2, togetherS + worstOf: 3}}
		if got := partitionColumns[1].get(r) + " " + partitionColumns[2].get(r); got != want {
			t.Errorf("%v: got %s, want %s", n, got, want)
		}
	}
}

// The silences of a run begin in all parts of the lease except its last tenth.
func TestMomentOf(t *testing.T) {
	const n = 16
	for i := range n {
		part := faultLease * 9 / 10 / n
		if d := momentOf(i, n, faultLease); d < time.Duration(i)*part || d >= time.Duration(i+1)*part {
			t.Errorf("%d: %v", i, d)
		}
	}
}

// A variant of a library counts as that library: an overlap of holdfast is an error, and one of a
// peer is not.
func TestContendersHaveLibraries(t *testing.T) {
	for _, c := range contenders {
		l, ok := libraryNamed(c.name)
		if !ok {
			t.Errorf("no library for %s", c.name)
		}
		if err := (results{{Library: c.name, Violations: 1}}).violated(); (err == nil) != l.peer {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// asGood lists the libraries that are as good as holdfast, and marks those that are ahead. An error
// or an overlap excludes a library.
func TestAsGood(t *testing.T) {
	cell := func(library string, stuck float64, violations int64, said string) result {
		return result{
			Scenario: "lost-answer", Point: "acquire, cut", Library: library, Violations: violations, Said: said,
			Figures: figures{conclusive: 8, stuckS + worstOf: stuck},
		}
	}
	lines := asGood(results{
		cell(holdfastName, 1, 0, "the key after 1 s"), cell("redsync+careful", 0.3, 0, "the key after 1 s"), cell("redislock", 1.1, 0, "the key after 1 s"),
		cell("redsync", 1, 1, "the key after 1 s"), cell("rueidislock", 1, 0, "error: x after 1 s"), cell("redislock+careful", 3, 0, "the key after 3 s"),
	})
	if want := "lost-answer acquire, cut: redsync+careful (ahead: 0.30 s at worst against 1.00 s), redislock"; len(lines) != 1 || lines[0] != want {
		t.Errorf("got %s", strings.Join(lines, "\n"))
	}
	told := func(library string, stuck float64) result {
		return result{Scenario: "partition", Library: library, Figures: figures{conclusive: 16, stuckS + worstOf: stuck, grantedS + worstOf: 3}}
	}
	lines = asGood(results{told(holdfastName, 0.3), told("redislock+careful", 1.1)})
	if want := "partition: redislock+careful"; len(lines) != 1 || lines[0] != want {
		t.Errorf("an early cancel must not count as a delay: got %s", strings.Join(lines, "\n"))
	}
}
