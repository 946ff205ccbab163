package tracing_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/tracing"
)

func parkedTask(key string, count int, oldest, delay time.Duration) event.Parked {
	return event.Parked{Name: "account", Kind: event.KindExclusive, Key: key, Count: count, Oldest: oldest, Delay: delay}
}

func unparkedTask(key string, left int, oldest time.Duration) event.Unparked {
	return event.Unparked{Name: "account", Kind: event.KindExclusive, Key: key, Parked: time.Minute, Count: left, Oldest: oldest}
}

// gauges checks the gauges of the class of parkedTask.
func (r *rig) gauges(t *testing.T, when string, tasks int64, oldest time.Duration) {
	t.Helper()
	of := func(name string) point {
		ps := r.points(t, name)
		if len(ps) != 1 || ps[0].labels["holdfast.kind"] != "exclusive" || ps[0].labels["holdfast.name"] != "account" || len(ps[0].labels) != 2 {
			t.Fatalf("%s: %s: %v, want one series with kind and name", when, name, ps)
		}
		return ps[0]
	}
	if n, s := of("holdfast.parked.tasks").n, of("holdfast.parked.oldest").sum; n != tasks || s != oldest.Seconds() {
		t.Errorf("%s: %d tasks, the oldest %v s; want %d, %v", when, n, s, tasks, oldest)
	}
}

// The gauges show the last event of each key: the sum of the tasks and the greatest age. The data
// of a key expires 30 s after the latest end of a delay of a task that this process parked.
func TestParkedGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tracing.Options{})
		if n := len(r.points(t, "holdfast.parked.tasks")) + len(r.points(t, "holdfast.parked.oldest")); n != 0 {
			t.Errorf("%d series before the first event, want 0", n)
		}
		r.Event(t.Context(), parkedTask("a", 1, 0, time.Minute))
		r.Event(t.Context(), parkedTask("a", 2, 5*time.Second, 10*time.Second)) // does not shorten the time until the data expires
		r.Event(t.Context(), parkedTask("b", 3, time.Second, 10*time.Second))
		r.gauges(t, "two keys", 5, 5*time.Second)
		time.Sleep(40*time.Second - 1)
		r.gauges(t, "before b ends", 5, 5*time.Second)
		time.Sleep(time.Nanosecond)
		r.gauges(t, "after b has ended", 2, 5*time.Second)

		r.Event(t.Context(), unparkedTask("a", 1, 40*time.Second))
		r.gauges(t, "one task is left", 1, 40*time.Second)
		time.Sleep(50*time.Second - 1)
		r.gauges(t, "before a ends", 1, 40*time.Second)
		time.Sleep(time.Nanosecond)
		r.gauges(t, "after a has ended", 0, 0)

		r.Event(t.Context(), unparkedTask("c", 7, time.Hour)) // parked by another process
		r.gauges(t, "tasks of others", 7, time.Hour)
		r.Event(t.Context(), unparkedTask("c", 0, 0))
		r.gauges(t, "no task is left", 0, 0)
		r.Event(t.Context(), unparkedTask("c", 7, time.Hour))
		time.Sleep(30 * time.Second)
		r.gauges(t, "tasks of others, later", 0, 0)
	})
}

// The kind of a key is part of its class: keys with the same name and different kinds are counted
// separately.
func TestParkedGaugesOfBothKinds(t *testing.T) {
	r := newRig(t, tracing.Options{})
	once := parkedTask("a", 2, time.Second, 0)
	once.Kind = event.KindOnce
	r.Event(t.Context(), once)
	r.Event(t.Context(), parkedTask("a", 1, time.Minute, 0))
	for kind, want := range map[string]int64{"exclusive": 1, "once": 2} {
		if n := r.count(t, "holdfast.parked.tasks", "holdfast.kind", kind); n != want {
			t.Errorf("%s: %d tasks, want %d", kind, n, want)
		}
	}
}

// The number of keys is bounded. A collection removes expired keys and so makes room for new ones.
func TestParkedGaugesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tracing.Options{})
		for i := range 5000 {
			r.Event(t.Context(), parkedTask(fmt.Sprint("old:", i), 1, 0, 0))
		}
		r.gauges(t, "5,000 keys", 4096, 0)
		r.Event(t.Context(), parkedTask("old:0", 2, 0, time.Hour)) // the key is known, so it needs no room
		r.gauges(t, "a known key", 4097, 0)
		time.Sleep(time.Minute)
		r.gauges(t, "after the others have ended", 2, 0)
		r.Event(t.Context(), parkedTask("new", 1, time.Second, 0))
		r.gauges(t, "a new key", 3, time.Second)
	})
}

// Events of many goroutines arrive during the collection of metrics. The final counts are exact.
func TestParkedGaugesConcurrently(t *testing.T) {
	r := newRig(t, tracing.Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("account:", i)
			for range 200 {
				r.Event(t.Context(), parkedTask(key, 2, time.Second, time.Minute))
				r.Event(t.Context(), unparkedTask(key, 0, 0))
			}
			r.Event(t.Context(), parkedTask(key, 1, time.Second, time.Minute))
		})
	}
	for range 50 {
		r.collect(t)
	}
	wg.Wait()
	r.gauges(t, "at the end", 8, time.Second)
	if n := r.count(t, "holdfast.parked"); n != 8*201 {
		t.Errorf("%d times parked, want %d", n, 8*201)
	}
}
