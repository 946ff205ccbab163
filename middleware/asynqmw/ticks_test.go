package asynqmw_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// ticker runs Ticks until stop is called or the test ends.
func (w *world) ticker(o asynqmw.TickOptions, tasks ...asynqmw.Periodic) (stop func()) {
	w.Helper()
	ticks, err := asynqmw.NewTicks(w.client, o, tasks...)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	w.Cleanup(stop)
	return stop
}

// heardTicks records the calls of OnTick.
type heardTicks struct {
	mu   sync.Mutex
	ok   []string
	errs []error
}

func (h *heardTicks) heard(name string, at time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.errs = append(h.errs, err)
	} else {
		h.ok = append(h.ok, asynqmw.TickID(name, at))
	}
}

// pending returns the sorted IDs of the tasks that are enqueued.
func (w *world) pending() (ids []string) {
	w.Helper()
	tasks, err := w.inspect.ListPendingTasks("default", asynq.PageSize(1000))
	if err != nil {
		w.Fatal(err)
	}
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	slices.Sort(ids)
	return ids
}

var fiveMinutes = asynqmw.Periodic{Name: "report", Spec: "*/5 * * * *", Task: asynq.NewTask("report", nil)}

// Five processes have clocks that differ by up to seconds. For hours each tick is enqueued exactly
// once, with its nominal time. Redis has no other data than the tasks.
// Shows: A11
func TestTicksFiveProcesses(t *testing.T) {
	t.Parallel()
	span := testlevel.Pick(t, 4*time.Hour, 24*time.Hour, 24*time.Hour)
	inBubble(t, func(w *world) {
		began := time.Now()
		var heard heardTicks
		for range 5 {
			defer w.ticker(asynqmw.TickOptions{OnTick: heard.heard}, fiveMinutes)()
			<-time.After(700 * time.Millisecond)
		}
		<-time.After(span - 10*time.Second)
		var want []string
		for at := began.Add(5 * time.Minute); at.Before(began.Add(span)); at = at.Add(5 * time.Minute) {
			want = append(want, asynqmw.TickID("report", at))
		}
		if got := w.pending(); !slices.Equal(got, want) {
			w.Errorf("enqueued %v, want %v", got, want)
		}
		if len(heard.ok) != 5*len(want) || len(heard.errs) > 0 {
			w.Errorf("OnTick got %d ticks, want %d; %v", len(heard.ok), 5*len(want), heard.errs)
		}
		keys, err := w.rdb.Keys(w.Context(), "*").Result()
		if err != nil {
			w.Fatal(err)
		}
		for _, k := range keys {
			if k != "asynq:queues" && k != "asynq:{default}:pending" && !strings.HasPrefix(k, "asynq:{default}:t:report@") {
				w.Errorf("%s is in Redis", k)
			}
		}
	})
}

// Redis is unavailable when a tick is due. The tick is enqueued when Redis is back, unless it is
// late by half of its retention, or the next tick is due.
// Shows: A11
func TestTicksRedisAway(t *testing.T) {
	for name, c := range map[string]struct {
		retention, away time.Duration
		want, missed    int // of the ticks at 5 and 10 min
	}{
		"back in time": {time.Hour, 2 * time.Minute, 2, 0},
		"the next due": {time.Hour, 7 * time.Minute, 1, 1},
		"too late":     {2 * time.Minute, 2 * time.Minute, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := faulty.New(t)
				w := newWorld(t, bubble(t).Client(t, func(o *redis.Options) { o.Dialer = faults.Dial(o.Dialer) }))
				var heard heardTicks
				p := fiveMinutes
				p.Opts = []asynq.Option{asynq.Retention(c.retention)}
				stop := w.ticker(asynqmw.TickOptions{OnTick: heard.heard}, p)
				<-time.After(4 * time.Minute)
				faults.Down()
				<-time.After(time.Minute + c.away)
				faults.Heal()
				<-time.After(13*time.Minute - time.Minute - c.away - 4*time.Minute)
				stop()
				if got := w.pending(); len(got) != c.want || len(heard.ok) != c.want || len(heard.errs) != c.missed {
					t.Errorf("enqueued %v; OnTick got %v, %v", got, heard.ok, heard.errs)
				}
				<-time.After(2 * time.Second) // go-redis checks once a second whether a dead server replies again
			})
		})
	}
}

// The time of the zone changes. In fall the repeated hour has a separate tick, and in spring the
// skipped hour has none.
func TestTicksDST(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		from time.Time
		want []string // UTC
	}{
		{time.Date(2000, 3, 26, 0, 30, 1, 0, berlin), []string{"26 00:30", "26 01:30", "26 02:30"}},
		{time.Date(2000, 10, 29, 0, 30, 1, 0, berlin), []string{"28 23:30", "29 00:30", "29 01:30"}},
	} {
		inBubble(t, func(w *world) {
			<-time.After(time.Until(tt.from))
			var got []string
			heard := func(_ string, at time.Time, _ error) { got = append(got, at.UTC().Format("02 15:04")) }
			stop := w.ticker(asynqmw.TickOptions{Location: berlin, OnTick: heard},
				asynqmw.Periodic{Name: "report", Spec: "30 * * * *", Task: asynq.NewTask("report", nil)})
			<-time.After(3*time.Hour + time.Minute)
			stop()
			if !slices.Equal(got, tt.want) {
				w.Errorf("ticks %q, want %q", got, tt.want)
			}
		})
	}
}

// A tick that asynq refuses is reported to OnTick.
func TestTicksRefused(t *testing.T) {
	inBubble(t, func(w *world) {
		var heard heardTicks
		p := fiveMinutes
		p.Opts = []asynq.Option{asynq.Unique(time.Hour)}
		stop := w.ticker(asynqmw.TickOptions{OnTick: heard.heard}, p)
		<-time.After(11 * time.Minute)
		stop()
		if len(heard.ok) != 1 || len(heard.errs) != 1 || !errors.Is(heard.errs[0], asynq.ErrDuplicateTask) {
			w.Errorf("OnTick got %v, %v", heard.ok, heard.errs)
		}
	})
}

// NewTicks reports all problems of the tasks at once, with the names of the tasks.
func TestTicksErrors(t *testing.T) {
	task := asynq.NewTask("report", nil)
	_, err := asynqmw.NewTicks(nil, asynqmw.TickOptions{},
		asynqmw.Periodic{Name: "a", Spec: "@every 5m", Task: task},
		asynqmw.Periodic{Name: "b", Spec: "61 * * * *"},
		asynqmw.Periodic{Name: "c", Spec: "@daily", Task: task, Opts: []asynq.Option{asynq.TaskID("x")}},
		asynqmw.Periodic{Name: "c", Spec: "@daily", Task: task},
		asynqmw.Periodic{Spec: "@daily", Task: task},
		asynqmw.Periodic{Name: "d", Spec: "CRON_TZ=UTC", Task: task},
		asynqmw.Periodic{Name: "e", Spec: "0 0 31 2 *", Task: task},
	)
	for _, want := range []string{
		"client must not be nil", `"a": spec "@every 5m" counts from the start`, `"b": spec "61`, "task must not be nil", `TaskID("x")`, "another task has this name",
		"name must not be empty", `"d": spec "CRON_TZ=UTC" has a zone and nothing else`, `"e": spec "0 0 31 2 *" has no tick`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}
