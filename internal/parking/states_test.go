package parking_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// fixed is a Queue whose tasks do not change.
type fixed struct {
	tasks map[string]parking.Task

	mu  sync.Mutex
	ran []string
}

func (f *fixed) Lookup(id string) parking.Task { return f.tasks[id] }

func (f *fixed) Run(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran = append(f.ran, id)
	return true
}

// A release finds the entry of a task in each state. It runs the task only if the task is parked on
// the key. If the task is not parked, the entry is removed, and the next task runs.
func TestStates(t *testing.T) {
	t.Parallel()
	const here, there = `test: parked on key "key" with 0 before it`, `test: parked on key "key2" with 0 before it`
	const stays, runs, removed = "stays", "runs", "removed"
	for name, tt := range map[string]struct {
		task  parking.Task
		again time.Duration // from the start
		want  string
	}{
		"parked":                     {task: parking.Task{State: parking.Delayed, LastError: here}, again: time.Hour, want: runs},
		"parked, in a longer text":   {task: parking.Task{State: parking.Delayed, LastError: "handler: " + here}, again: time.Hour, want: runs},
		"parked, comes back at once": {task: parking.Task{State: parking.Delayed, LastError: here}, again: 400 * time.Millisecond, want: runs},
		"kept, comes back later":     {task: parking.Task{State: parking.Delayed, LastError: here, Kept: true}, again: time.Hour, want: runs},
		"kept, comes back at once":   {task: parking.Task{State: parking.Delayed, LastError: here, Kept: true}, again: 400 * time.Millisecond, want: removed},
		"parked on another key":      {task: parking.Task{State: parking.Delayed, LastError: there}, again: time.Hour, want: removed},
		"failed":                     {task: parking.Task{State: parking.Delayed, LastError: "handler: boom"}, again: time.Hour, want: removed},
		"completed":                  {task: parking.Task{State: parking.Other, LastError: here}, want: removed},
		"gone":                       {task: parking.Task{State: parking.Gone}, want: removed},
		"pending":                    {task: parking.Task{State: parking.Pending, LastError: here}, want: stays},
		"running":                    {task: parking.Task{State: parking.Running, LastError: here}, want: stays},
		"unknown":                    {task: parking.Task{State: parking.Unknown}, want: stays},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, lockcore.Options{}, func(q *queue) {
				tt.task.Again = time.Now().Add(tt.again)
				f := &fixed{tasks: map[string]parking.Task{"first": tt.task, "next": {State: parking.Delayed, LastError: here, Again: time.Now().Add(time.Hour)}}}
				pool := parking.New(parking.Options{Queue: f, Name: "test", Workers: 1, Check: check, Late: check})
				pool.Delivery(parking.Request{Locks: q.locks, Keys: []parking.Key{{Name: "key", Weight: 1}}, Task: "other", Mean: new(parking.Mean)})
				holder := q.hold("key")
				q.park("key", "/first")
				q.park("key", "/next")
				q.release(holder)
				time.Sleep(50 * time.Millisecond)
				f.mu.Lock()
				got := fmt.Sprint(f.ran, " ", q.entries("key"))
				f.mu.Unlock()
				if want := map[string]string{runs: "[first] 2", stays: "[] 2", removed: "[next] 1"}[tt.want]; got != want {
					q.Errorf("tasks that ran and number of entries: %s, want %s", got, want)
				}
			})
		})
	}
}

// A woken task stays pending, because its queue is paused. The other tasks run when WokenTime has
// passed if they are in another queue, and after the first one if they are in the same.
func TestBacklog(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"another queue": true, "the same queue": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, lockcore.Options{}, func(q *queue) {
				q.terms.Lease = 10 * time.Minute // no task comes back by itself
				holder := q.hold("key")
				q.serve(3)
				for _, id := range names(5) {
					q.add("key", id)
					q.parked(id)
				}
				q.set(func() {
					q.tasks["t0"].paused = true
					if other {
						q.tasks["t0"].Queue = "t0"
					}
				})
				began, least := time.Now(), backend.WokenTime
				q.release(holder)
				if !other {
					time.Sleep(time.Minute)
					if runs := q.runs(); len(runs) > 0 || q.task("t1").State != parking.Delayed {
						q.Errorf("%v ran, and the second task has state %d, want none and parked", runs, q.task("t1").State)
					}
					began, least = time.Now(), 0
					q.set(func() { q.tasks["t0"].paused = false })
				}
				q.done(names(5)[1:]...)
				if took := time.Since(began); took < least || took > least+6*time.Second {
					q.Errorf("the next tasks ran after %v", took)
				}
			})
		})
	}
}

// The queue never replies. Deliveries are not delayed, also those of parked tasks, which come back by
// themselves.
func TestQueueHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		q.work = time.Second
		block := make(chan struct{})
		holder := q.hold("key")
		q.serve(3)
		q.add("key", names(2)...)
		q.parked(names(2)...)
		q.set(func() { q.block = block })
		began := time.Now()
		q.release(holder)
		q.done(names(2)...)
		if took := time.Since(began); took > 2*itself+soon { // the second task may come back while the first one runs
			q.Errorf("done after %v", took)
		}
		if n := len(q.runs()); n != 2 || q.inside() != 1 {
			q.Errorf("%d runs, %d at once", n, q.inside())
		}
		if q.slowest > q.work+200*time.Millisecond {
			q.Errorf("a delivery took %v, want the second of its run", q.slowest)
		}
		q.set(func() { q.block = nil })
		close(block)
	})
}

// A late wake makes the queue run a completed task again. The guard does not run it a second time,
// and reports that. A minute after its completion it runs.
func TestLateRun(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		holder := q.hold("key")
		q.serve(3)
		q.add("key", "t0")
		q.parked("t0")
		q.release(holder)
		q.done("t0")
		q.set(func() { q.tasks["t0"].Kept = true })
		q.Run("t0")
		q.done("t0")
		skipped := locktest.EventsOf[event.RerunSkipped](q.heard)
		if n := len(q.runs()); n != 1 || len(skipped) != 1 || skipped[0].Key != "key" || skipped[0].Completed > 5*time.Second {
			q.Errorf("%d runs, skipped %+v; want 1 of each", n, skipped)
		}
		time.Sleep(time.Minute)
		q.Run("t0")
		q.done("t0")
		if n := len(q.runs()); n != 2 {
			q.Errorf("%d runs after a minute, want 2", n)
		}
	})
}

// A queue that cannot know the task is reported once.
func TestProblem(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		holder := q.hold("key")
		q.serve(3)
		q.add("key", names(3)...)
		q.parked(names(3)...)
		q.set(func() {
			for _, t := range q.tasks {
				t.Problem = "the wrong queue"
			}
		})
		q.release(holder)
		q.done(names(3)...)
		var problems []string
		for _, e := range locktest.EventsOf[event.Misconfigured](q.heard) {
			problems = append(problems, e.Problem)
		}
		if text := strings.Join(problems, "; "); text != "the wrong queue" {
			q.Errorf("reported %q, want it once", text)
		}
	})
}
