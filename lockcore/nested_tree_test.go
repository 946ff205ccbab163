package lockcore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// treeModel predicts the results of nested calls of one hold. Run 0 is that of the hold itself.
type treeModel struct {
	runs    []treeRun
	waiting []treeWaiter // in the order of arrival
}

type treeRun struct {
	lease  *lockcore.Lease
	parent int // -1: none
	over   bool
}

type treeWaiter struct {
	from     int // the run whose ctx it has
	got      <-chan outcome
	cancel   context.CancelFunc
	competes bool
}

// nearest returns run i or its nearest ancestor that has not returned, or -1.
func (m *treeModel) nearest(i int) int {
	for i >= 0 && m.runs[i].over {
		i = m.runs[i].parent
	}
	return i
}

// occupied reports whether another run is open directly inside run at.
func (m *treeModel) occupied(at int) bool {
	return slices.ContainsFunc(m.runs, func(r treeRun) bool { return !r.over && r.parent >= 0 && m.nearest(r.parent) == at })
}

func (m *treeModel) open() (out []int) {
	for i, r := range m.runs {
		if !r.over {
			out = append(out, i)
		}
	}
	return out
}

// next removes the next waiter that can enter, and returns it and the run that it enters, or -1.
func (m *treeModel) next() (treeWaiter, int) {
	for i, w := range m.waiting {
		at := m.nearest(w.from)
		if at < 0 {
			m.waiting[i].competes = true
		}
		if at >= 0 && !m.occupied(at) {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			return w, at
		}
	}
	return treeWaiter{}, -1
}

// Nested calls with any ctx, released in any order, have the results that a small model predicts.
// Shows: N1
func TestNestedTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		for seed := range uint64(testlevel.Pick(t, 100, 1000, 10_000)) { //nolint:gosec // positive
			tree(&seeded{t, rand.New(rand.NewPCG(seed, 0)), seed}, l, func() int { return len(count.Commands()) }) //nolint:gosec // no secret
		}
	})
}

// seeded is a test whose failures name the seed. Package rapid does not work in a bubble.
type seeded struct {
	*testing.T
	*rand.Rand

	seed uint64
}

func (s *seeded) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatalf("seed %d: "+format, append([]any{s.seed}, args...)...)
}

func tree(t *seeded, l *lockcore.Locker, sent func() int) {
	key := strconv.FormatUint(t.seed, 10)
	outer, err := l.Acquire(context.Background(), key, lockcore.Terms{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	before := sent()
	m := &treeModel{runs: []treeRun{{lease: outer, parent: -1}}}
	settle := func() {
		synctest.Wait()
		for w, at := m.next(); at >= 0; w, at = m.next() {
			select {
			case o := <-w.got:
				if o.err != nil {
					t.Fatalf("a waiter with the ctx of run %d: %v", w.from, o.err)
				}
				m.runs = append(m.runs, treeRun{lease: o.lease, parent: at})
			default:
				t.Fatalf("a waiter with the ctx of run %d does not enter run %d", w.from, at)
			}
		}
		for _, w := range m.waiting {
			if len(w.got) > 0 {
				t.Fatalf("a waiter with the ctx of run %d enters", w.from)
			}
		}
	}
	for range 5 + t.IntN(36) {
		if len(m.open()) == 1 && len(m.waiting) > 0 {
			break // releasing the last run would end the hold
		}
		i := t.IntN(len(m.runs))
		ctx, at := context.WithoutCancel(m.runs[i].lease.Context()), m.nearest(i) // other tests cover cancellation
		switch t.IntN(4) {
		case 0:
			le, err := l.Acquire(ctx, key, noWait)
			busy, _ := errors.AsType[*lockcore.BusyError](err)
			switch {
			case at < 0 && (busy == nil || busy.Nested), at >= 0 && m.occupied(at) && (busy == nil || !busy.Nested):
				t.Fatalf("run %d, at %d: %v", i, at, err)
			case at >= 0 && !m.occupied(at):
				if err != nil {
					t.Fatalf("run %d, at %d: %v", i, at, err)
				}
				m.runs = append(m.runs, treeRun{lease: le, parent: at})
			}
		case 1:
			ctx, cancel := context.WithCancel(ctx)
			got := make(chan outcome, 1)
			m.waiting = append(m.waiting, treeWaiter{from: i, got: got, cancel: cancel})
			go func() {
				le, err := l.Acquire(ctx, key, forever)
				got <- outcome{lease: le, err: err}
			}()
		case 2:
			open := m.open()
			if len(open) == 1 {
				continue
			}
			i := open[t.IntN(len(open))]
			if err := m.runs[i].lease.Release(ctx); err != nil {
				t.Fatal(err)
			}
			m.runs[i].over = true
		case 3:
			if len(m.waiting) > 0 {
				i := t.IntN(len(m.waiting))
				m.waiting[i].cancel()
				if o := <-m.waiting[i].got; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, lockcore.ErrNotRun) {
					t.Fatalf("canceled: %v", o.err)
				}
				m.waiting = slices.Delete(m.waiting, i, i+1)
			}
		}
		settle()
	}
	if n := sent() - before; n > 0 {
		t.Fatalf("%d commands", n)
	}
	for len(m.open()) > 0 { // from the outside in; the waiters that are left compete and get their own holds
		i := m.open()[0]
		if err := m.runs[i].lease.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		m.runs[i].over = true
		if len(m.open()) > 0 {
			settle()
		}
	}
	for len(m.waiting) > 0 { // in any order
		synctest.Wait()
		i := slices.IndexFunc(m.waiting, func(w treeWaiter) bool { return len(w.got) > 0 })
		if i < 0 {
			time.Sleep(time.Second)
			continue
		}
		o := <-m.waiting[i].got
		if o.err != nil || o.lease.Token() <= outer.Token() {
			t.Fatalf("a waiter got %v, want its own hold", o.err)
		}
		m.waiting[i].cancel()
		_ = o.lease.Release(context.Background())
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
}
