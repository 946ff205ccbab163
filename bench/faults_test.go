package main

import (
	"context"
	"errors"
	"maps"
	"math"
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
	if f.together != 500*time.Millisecond || f.stuck != time.Second || f.said != "key" || f.saidAfter != 1500*time.Millisecond {
		t.Errorf("got %+v", f)
	}
}

// An error is reported with its time, and is no overlap.
func TestAcquireError(t *testing.T) {
	n := &link{}
	f := find(t, &trial{point: point{Moment: loseAcquire}, net: n, a: losing(n, 5*time.Second, errors.New("x: i/o timeout")), b: granted(3*time.Second, 0)}, 20*time.Second)
	if f.together != 0 || f.stuck != 3*time.Second || f.said != "error" || f.saidAfter != 5*time.Second {
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
	if f.together != 0 || f.stuck != 2*time.Second-shortWork || f.said != "done" || f.saidAfter != time.Second {
		t.Errorf("got %+v", f)
	}
}

// sumUp keeps the worst figures, and counts the overlaps and the rounds that showed nothing.
func TestSumUp(t *testing.T) {
	var o outcome
	sumUp([]finding{
		{together: time.Second, said: "key", saidAfter: time.Second},
		{said: "key", saidAfter: 3 * time.Second, stuck: time.Second},
		{said: "error", saidAfter: time.Second},
		{inconclusive: "A had ended before"},
	}, &o)
	want := figures{inconclusive: 1, untold: 0, neverB: 0, togetherMedian: 0, togetherWorst: 1, stuckWorst: 1, grantedWorst: 0}
	if o.Violations != 1 || !maps.Equal(o.Extra, want) || o.Said != "2 × key 2.00; 1 × error 1.00; A had ended before" {
		t.Errorf("got %+v", o)
	}
	o = outcome{}
	sumUp([]finding{{inconclusive: "x"}}, &o)
	if v := (result{figures: o.Extra}).get(togetherWorst); !math.IsNaN(v) || o.Said != "x" {
		t.Errorf("without a round: got %v, %q", v, o.Said)
	}
}

// A figure that is a lower bound is marked.
func TestBound(t *testing.T) {
	for n, want := range map[float64]string{0: "3.00", 1: "≥ 3.00"} {
		r := result{figures: figures{untold: n, togetherWorst: 3}}
		if got := bound(togetherWorst)(nil, r); got != want {
			t.Errorf("%v: got %s, want %s", n, got, want)
		}
	}
	if got := (result{figures: figures{neverB: 1, stuckWorst: 3}}).stuck(); got != "≥ 3.00" {
		t.Errorf("got %s", got)
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
