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

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Five schedulers, their clocks seconds apart, and a worker that is done with the first one's task before the last one
// asks: a tick is one task.
func TestEnqueueTick(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var g gauge
		w.serve(quick(), g.handler(nothing))
		task := asynq.NewTask("report", nil, asynq.TaskID("mine"), asynq.Retention(time.Second)) // both are replaced
		noon := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)
		for range 5 {
			if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", noon, task); err != nil {
				w.Error(err)
			}
			<-time.After(2 * time.Second)
		}
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
		info, err := w.inspect.GetTaskInfo("default", asynqmw.TickID("report", noon))
		if err != nil || info.ID != "report@946728000" || info.State != asynq.TaskStateCompleted || info.Retention != time.Hour {
			w.Errorf("task %+v, %v", info, err)
		}
		later := noon.Add(time.Minute).In(time.FixedZone("X", 3600)) // the zone is not part of the name
		for _, at := range []time.Time{later, later.UTC()} {
			if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", at, task, asynq.Retention(24*time.Hour), asynq.MaxRetry(7)); err != nil {
				w.Error(err)
			}
		}
		info, err = w.inspect.GetTaskInfo("default", asynqmw.TickID("report", later))
		if err != nil || info.Retention != 24*time.Hour || info.MaxRetry != 7 {
			w.Errorf("task %+v, %v: the options were not taken over", info, err)
		}
		w.ends(info, asynq.TaskStateCompleted)
		if runs, _ := g.counts(); runs != 2 {
			w.Errorf("%d runs, want one a tick", runs)
		}
	})
}

// Five at the very same time: one task, and an error for nobody.
func TestEnqueueTickAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		noon := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)
		errs := make(chan error, 5)
		for range 5 {
			go func() {
				errs <- asynqmw.EnqueueTick(w.Context(), w.client, "report", noon, asynq.NewTask("report", nil))
			}()
		}
		for range 5 {
			if err := <-errs; err != nil {
				w.Error(err)
			}
		}
		if info, err := w.inspect.GetQueueInfo("default"); err != nil || info.Size != 1 {
			w.Errorf("queue %+v, %v; want one task", info, err)
		}
	})
}

// A tick that was not enqueued is an error: one that the caller made, and one of asynq.
func TestEnqueueTickErrors(t *testing.T) {
	inBubble(t, func(w *world) {
		at, task := time.Now(), asynq.NewTask("report", nil)
		err := asynqmw.EnqueueTick(w.Context(), w.client, " ", time.Time{}, task, asynq.TaskID("mine"), asynq.Retention(time.Second))
		for _, want := range []string{"EnqueueTick", "name", "at must", `TaskID("mine")`, "Retention(1s)"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("error %q does not name %s", err, want)
			}
		}
		unique := asynq.Unique(time.Hour)
		if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", at, task, unique); err != nil {
			w.Error(err)
		}
		if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", at.Add(time.Minute), task, unique); !errors.Is(err, asynq.ErrDuplicateTask) {
			w.Errorf("error %v, want ErrDuplicateTask: this tick has no task", err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := asynqmw.EnqueueTick(ctx, w.client, "report", at.Add(time.Hour), task); err == nil {
			w.Error("nil for a tick that was not enqueued")
		}
	})
}

// asynq's scheduler, five times: for two hours each tick is enqueued once, under its nominal time.
func TestTicksFiveSchedulers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, redistest.Bubble(t).Client(t))
		began := time.Now()
		var mu sync.Mutex
		var wins []string
		losses := 0
		opts := &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, HeartbeatInterval: time.Hour, PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				wins = append(wins, info.ID)
			case errors.Is(err, asynq.ErrTaskIDConflict):
				losses++
			default:
				t.Error(err)
			}
		}}
		var managers []*asynq.PeriodicTaskManager
		for range 5 {
			managers = append(managers, manager(t, w, opts, asynqmw.Periodic{Name: "report", Spec: "*/5 * * * *", Task: asynq.NewTask("report", nil)}))
			<-time.After(700 * time.Millisecond)
		}
		<-time.After(2*time.Hour - 10*time.Second)
		for _, m := range managers {
			m.Shutdown()
		}
		var want []string
		for at := began.Add(5 * time.Minute); at.Before(began.Add(2 * time.Hour)); at = at.Add(5 * time.Minute) {
			want = append(want, asynqmw.TickID("report", at))
		}
		if !slices.Equal(wins, want) || losses != 4*len(want) {
			t.Errorf("enqueued %v, want %v; %d losses, want %d", wins, want, losses, 4*len(want))
		}
	})
}

// manager starts one of several schedulers.
func manager(t *testing.T, w *world, o *asynq.SchedulerOpts, tasks ...asynqmw.Periodic) *asynq.PeriodicTaskManager {
	t.Helper()
	ticks, err := asynqmw.Ticks(asynqmw.TickOptions{}, tasks...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
		RedisUniversalClient: w.rdb, PeriodicTaskConfigProvider: ticks, SchedulerOpts: o,
	})
	if err == nil {
		err = m.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// In a zone that goes back an hour the repeated hour has ticks of its own, and that of the spring has none.
func TestTicksDST(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		from time.Time
		want []string // UTC
	}{
		{time.Date(2000, 3, 26, 0, 30, 0, 0, berlin), []string{"30 0 26 3", "30 1 26 3", "30 2 26 3"}},
		{time.Date(2000, 10, 29, 0, 30, 0, 0, berlin), []string{"30 23 28 10", "30 0 29 10", "30 1 29 10"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			<-time.After(time.Until(tt.from))
			ticks, err := asynqmw.Ticks(asynqmw.TickOptions{Location: berlin, Ahead: 3*time.Hour + time.Minute},
				asynqmw.Periodic{Name: "report", Spec: "30 * * * *", Task: asynq.NewTask("report", nil)})
			if err != nil {
				t.Fatal(err)
			}
			configs, err := ticks.GetConfigs()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range configs[1:] { // the first is the one of now
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(c.Cronspec, "CRON_TZ=UTC "), " *"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("ticks %q, want %q", got, tt.want)
			}
		})
	}
}

// Every problem of the tasks is reported at once, with the task's name.
func TestTicksErrors(t *testing.T) {
	task := asynq.NewTask("report", nil)
	_, err := asynqmw.Ticks(
		asynqmw.TickOptions{Ahead: time.Second},
		asynqmw.Periodic{Name: "a", Spec: "@every 5m", Task: task},
		asynqmw.Periodic{Name: "b", Spec: "61 * * * *"},
		asynqmw.Periodic{Name: "c", Spec: "@daily", Task: task, Opts: []asynq.Option{asynq.TaskID("x")}},
		asynqmw.Periodic{Name: "c", Spec: "@daily", Task: task},
		asynqmw.Periodic{Spec: "@daily", Task: task},
	)
	for _, want := range []string{
		"TickOptions.Ahead", `"a": spec "@every 5m" counts from the start`, `"b": spec "61`, "task must not be nil", `TaskID("x")`, "another task has this name", "name must not be empty",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}
