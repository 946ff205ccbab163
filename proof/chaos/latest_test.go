package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// latestTypes are the types of tasks under Latest. Each has latestKeys keys.
var latestTypes = map[string]asynqmw.LatestOptions{
	"plain":     {},
	"interrupt": {Interrupt: true},
	"delay":     {Delay: time.Second, MaxDelay: 3 * time.Second},
}

const latestKeys = 3

// latestPoints are where workers of Latest are killed, in turn. A point "" is a random moment.
var latestPoints = []order{
	{Point: "trigger sent"},
	{Point: "trigger answered"},
	{Point: atBegun},
	{},
	{Point: atWorking},
	{Point: atEnded},
	{Point: "acquire answered"},
	{Point: atSent},
	{Point: "release sent"},
	{},
	{Point: "park answered"},
	{Point: "trigger answered", Keys: "delay"},
	{Point: "revoke sent", Keys: "interrupt"},
}

// latestKills is a scenario in which n workers are killed.
func latestKills(name string, n func() int) scenario {
	return scenario{
		name: name, procs: 4, wait: time.Second, noGroups: true,
		on: func(r *run) {
			oneServer(r)
			r.load.Queue = redistest.Real(r).Addr()
		},
		happens: func(r *run) { r.triggerAndKill(n()) },
		proves: func(r *run, v *verdict) bool {
			return r.reached() >= n()/2 && v.counts["latest ran"] > n() && v.counts["latest replaced"] > n() && v.counts["latest interrupted"] > 0
		},
	}
}

// TestLatestKills is the scenario with few kills.
// Shows: A14, A15
func TestLatestKills(t *testing.T) {
	testlevel.Campaign(t) // it is random, and takes real time
	t.Parallel()
	s := latestKills("latest, a few kills", func() int { return len(latestPoints) })
	r := s.start(t)
	s.happens(r)
	r.finish()
	checkRun(t, r)
}

// triggerAndKill enqueues tasks of all keys until n workers were killed, and then waits until all
// tasks have ended. asynq delivers the task of a killed worker again after one to two minutes.
func (r *run) triggerAndKill(n int) {
	rdb := redis.NewClient(&redis.Options{Addr: r.load.Queue})
	defer func() { _ = rdb.Close() }()
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(30 * time.Millisecond)):
			}
			for kind := range latestTypes { // in random order
				r.trigger(client, kind, fmt.Sprint(i), rand.IntN(latestKeys))
				break
			}
		}
	}()
	for i := range n {
		time.Sleep(rand.N(300 * time.Millisecond))
		p := r.slots[i%len(r.slots)]
		p.kill(latestPoints[i%len(latestPoints)])
		p.begin()
	}
	close(stop)
	<-stopped
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		info, err := inspector.GetQueueInfo("default")
		if err != nil {
			r.Fatal(err)
		}
		left := info.Pending + info.Active + info.Retry + info.Scheduled
		if left == 0 || time.Now().After(end) {
			if left+info.Archived > 0 {
				r.Errorf("%d tasks are left, %d archived", left, info.Archived)
			}
			break
		}
	}
	time.Sleep(lease) // keys of workers that were killed
}

// trigger enqueues a task, and notes the time before that.
func (r *run) trigger(client *asynq.Client, kind, id string, key int) {
	payload := fmt.Sprint(kind, ":", key)
	r.mu.Lock()
	r.triggered[id+" "+payload] = process.Now()
	r.mu.Unlock()
	if _, err := client.Enqueue(asynq.NewTask(kind, []byte(payload)), asynq.TaskID(id), asynq.MaxRetry(100_000)); err != nil {
		r.Error(err)
	}
}

var errRunFails = errors.New("the run fails as planned")

// latest serves tasks under Latest until over ends.
func (w *worker) latest(over context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: w.Load.Queue})
	w.clients = append(w.clients, rdb)
	key := func(_ context.Context, t *asynq.Task) (guard.Key, error) {
		return guard.Key{ID: string(t.Payload())}, nil
	}
	mux := asynq.NewServeMux()
	for kind, o := range latestTypes {
		guarded := asynqmw.Latest(w.locks, key, o)(asynq.HandlerFunc(w.latestRun))
		mux.Handle(kind, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			err := guarded.ProcessTask(ctx, t)
			l := line{Op: opSettled, Key: string(t.Payload()), Text: t.ResultWriter().TaskID()}
			switch {
			case err == nil:
				l.Sum = "nil"
			case errors.Is(err, errRunFails), errors.Is(err, lockcore.ErrReplaced):
				l.Sum = "failed"
			case errors.Is(err, lockcore.ErrBusy):
				l.Sum = "later"
			}
			w.write(l)
			w.reached(atSent, l.Key)
			return err
		}))
	}
	cfg := asynqmw.ConfigureParking(asynq.Config{
		Concurrency: 6, TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	}, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(rdb)})
	srv := asynq.NewServerFromRedisClient(rdb, cfg)
	if err := srv.Start(mux); err != nil {
		return err
	}
	<-over.Done()
	srv.Shutdown()
	return nil
}

// latestRun is a run of a task. One in ten fails, and some take long.
func (w *worker) latestRun(ctx context.Context, t *asynq.Task) error {
	l := line{Op: opBegan, Key: string(t.Payload()), Text: t.ResultWriter().TaskID()}
	w.write(l)
	w.reached(atBegun, l.Key)
	work := rand.N(40 * time.Millisecond)
	if rand.IntN(20) == 0 {
		work = lease / 3
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(work):
	}
	w.reached(atWorking, l.Key)
	if rand.IntN(10) == 0 {
		return errRunFails
	}
	l.Op, l.At = opSuccess, 0
	w.write(l)
	w.reached(atEnded, l.Key)
	return nil
}

// judgeLatest judges the tasks under Latest. The order of two tasks is known if one of them was
// enqueued after the first delivery of the other one had noted it: it had begun, or asynq had got an
// answer that a note precedes.
func (o *oracle) judgeLatest(v *verdict) {
	type key struct {
		last      int64 // when its last task was enqueued
		lastID    string
		succeeded int64 // when the newest task with a recorded success was enqueued
		newestID  string
		covered   int64 // when the last run that succeeded began
	}
	keys, noted := map[string]*key{}, map[string]int64{}
	type open struct {
		began   int64
		success bool
	}
	runs := map[string]*open{}
	at := func(name string) *key {
		if keys[name] == nil {
			keys[name] = new(key)
		}
		return keys[name]
	}
	for task, enqueued := range o.triggered {
		var id, name string
		_, _ = fmt.Sscan(task, &id, &name)
		if k := at(name); enqueued > k.last {
			k.last, k.lastID = enqueued, id
		}
	}
	for _, l := range o.latest {
		k, task, run := at(l.Key), l.Text+" "+l.Key, l.Proc+" "+l.Text
		enqueued := o.triggered[task]
		if noted[task] == 0 && l.Sum != "" || l.Op == opBegan && noted[task] == 0 {
			noted[task] = l.At
		}
		switch r := runs[run]; l.Op {
		case opBegan:
			v.counts["latest ran"]++
			runs[run] = &open{began: l.At}
			if noted[task] < k.succeeded { // it was known when the newer one was enqueued, which has succeeded
				v.fail("stale", "task %s of %s runs after the success of task %s", l.Text, l.Key, k.newestID)
			}
		case opSuccess:
			if r != nil {
				r.success = true
				k.covered = max(k.covered, r.began)
			}
		case opSettled:
			switch {
			case l.Sum == "nil" && r == nil:
				v.counts["latest replaced"]++
			case l.Sum == "nil" && !r.success:
				v.counts["latest interrupted"]++
			case l.Sum == "nil" && enqueued > k.succeeded:
				k.succeeded, k.newestID = enqueued, l.Text
			}
			delete(runs, run)
		}
	}
	for name, k := range keys {
		if k.covered < k.last {
			v.fail("trigger", "task %s of %s, the last one, is lost: no run that succeeded began after it", k.lastID, name)
		}
	}
}

// The judge finds a lost trigger and a stale run, and no mistake in a story without one.
func TestJudgeLatest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tell  func(trigger func(id string, at int64), says func(op, id, sum string, at int64))
		check string // "": in order
	}{
		"a task that runs": {tell: func(trigger func(string, int64), says func(string, string, string, int64)) {
			trigger("1", 10)
			says(opBegan, "1", "", 20)
			says(opSuccess, "1", "", 30)
			says(opSettled, "1", "nil", 31)
		}},
		"the last task completes before a run begins": {check: "trigger", tell: func(trigger func(string, int64), says func(string, string, string, int64)) {
			trigger("1", 10)
			says(opBegan, "1", "", 20)
			trigger("2", 25)
			says(opSuccess, "1", "", 30)
			says(opSettled, "1", "nil", 31)
			says(opSettled, "2", "nil", 32)
		}},
		"the last run fails": {check: "trigger", tell: func(trigger func(string, int64), says func(string, string, string, int64)) {
			trigger("1", 10)
			says(opBegan, "1", "", 20)
			says(opSettled, "1", "nil", 31)
		}},
		"an older task runs after the success of a newer one": {check: "stale", tell: func(trigger func(string, int64), says func(string, string, string, int64)) {
			trigger("1", 10)
			says(opSettled, "1", "later", 11)
			trigger("2", 12)
			says(opBegan, "2", "", 20)
			says(opSuccess, "2", "", 30)
			says(opSettled, "2", "nil", 31)
			says(opBegan, "1", "", 40)
			says(opSuccess, "1", "", 41)
			says(opSettled, "1", "nil", 42)
		}},
		"an older task runs after a success that is not recorded": {tell: func(trigger func(string, int64), says func(string, string, string, int64)) {
			trigger("1", 10)
			says(opSettled, "1", "later", 11)
			trigger("2", 12)
			says(opBegan, "2", "", 20)
			says(opSuccess, "2", "", 30) // and the worker is killed
			says(opBegan, "1", "", 40)
			says(opSuccess, "1", "", 41)
			says(opSettled, "1", "nil", 42)
		}},
		"tasks whose order is not known": {tell: func(trigger func(string, int64), says func(string, string, string, int64)) {
			trigger("1", 10)
			trigger("2", 12)
			says(opBegan, "2", "", 20)
			says(opSuccess, "2", "", 30)
			says(opSettled, "2", "nil", 31)
			says(opBegan, "1", "", 40)
			says(opSuccess, "1", "", 41)
			says(opSettled, "1", "nil", 42)
		}},
	} {
		s := newStory()
		c.tell(
			func(id string, at int64) { s.triggered[id+" k"] = ms(at) },
			func(op, id, sum string, at int64) {
				s.read(line{Op: op, Proc: "p", Key: "k", Text: id, Sum: sum, At: ms(at)})
			},
		)
		wrong := s.wrong(rules{})
		if c.check == "" && len(wrong) > 0 || c.check != "" && (len(wrong) != 1 || checkOf(wrong[0]) != c.check) {
			t.Errorf("%s: %q, want %q", name, wrong, c.check)
		}
	}
}
