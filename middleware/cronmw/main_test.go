package cronmw_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

func TestMain(m *testing.M) {
	if os.Getenv(instanceEnv) != "" {
		os.Exit(instance())
	}
	logging.Disable() // faults are what these tests are about
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

var errBoom = errors.New("boom")

// world has a Redis in a bubble, and a journal of the instances on it.
type world struct {
	*testing.T
	redis *redistest.Memory
	journal
}

func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether a dead server replies again
		test(&world{T: t, redis: redistest.Bubble(t)})
	})
}

// process is the part of one instance: a connection to Redis with faults, and a Locker.
type process struct {
	w      *world
	locks  *lockcore.Locker
	faults *faulty.Network
	skew   time.Duration
}

func (w *world) process(edit ...func(*lockcore.Options)) *process {
	w.Helper()
	p := &process{w: w, faults: faulty.New(w.T)}
	o := lockcore.Options{NoGroups: true} // each call is one command
	for _, e := range edit {
		e(&o)
	}
	rdb := w.redis.Client(w.T, func(o *redis.Options) { o.Dialer = p.faults.Dial(o.Dialer) })
	var err error
	if p.locks, err = lockcore.New(rdb, o); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.faults.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.locks.Close(ctx)
	})
	return p
}

func (p *process) jobs() *cronmw.Jobs {
	return p.with(cronmw.Options{Now: func() time.Time { return time.Now().Add(p.skew) }})
}

func (p *process) with(o cronmw.Options) *cronmw.Jobs {
	js, err := cronmw.New(p.locks, o)
	if err != nil {
		panic(err)
	}
	return js
}

// start runs the Jobs until stop is called. stop returns when Run has returned.
func (w *world) start(js *cronmw.Jobs) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- js.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// until sleeps until a time of the bubble's clock, which begins at 2000-01-01T00:00:00Z.
func until(clock string) { time.Sleep(time.Until(at(clock))) }

func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", clock)
	if err != nil {
		panic(err)
	}
	return t
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// journal records the runs of fn, and the results.
type journal struct {
	mu      sync.Mutex
	runs    []string // ticks, in the order in which they began
	results []cronmw.Result
}

func (j *journal) ran(t cronmw.Tick) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs = append(j.runs, t.Time.UTC().Format("02 15:04:05"))
}

// fn is a job that takes no time.
func (j *journal) fn(_ context.Context, t cronmw.Tick) error { j.ran(t); return nil }

// lasting returns a job that takes d and returns early when its ctx ends.
func (j *journal) lasting(d time.Duration) func(context.Context, cronmw.Tick) error {
	return func(ctx context.Context, t cronmw.Tick) error {
		j.ran(t)
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (j *journal) heard(r cronmw.Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.results = append(j.results, r)
}

func (j *journal) ticks() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.runs)
}

// of returns the results with an outcome.
func (j *journal) of(o cronmw.Outcome) (found []cronmw.Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.results {
		if r.Outcome == o {
			found = append(found, r)
		}
	}
	return found
}

// all returns the outcomes in order.
func (j *journal) all() (found []cronmw.Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.results {
		found = append(found, r.Outcome)
	}
	return found
}

func (w *world) wantTicks(want ...string) {
	w.Helper()
	if got := w.ticks(); !slices.Equal(got, want) {
		w.Errorf("ran the ticks %q, want %q", got, want)
	}
}

func (w *world) wantOutcomes(want ...cronmw.Outcome) {
	w.Helper()
	if got := w.all(); !slices.Equal(got, want) {
		w.Errorf("outcomes %v, want %v", got, want)
	}
}

func (w *world) wantError(err error, text string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		w.Errorf("%v, want an error with %q", err, text)
	}
}
