package rivermw

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	rescueAfter   = time.Hour       // River's default of RescueStuckJobsAfter
	pollInterval  = time.Second     // River's default of FetchPollInterval
	scheduleEvery = 5 * time.Second // River moves jobs that are due to the available ones this often
	lookTime      = 5 * time.Second // of one call of River by a waker
)

// Wake returns a middleware that makes jobs wait for a busy key outside of the workers, so that a
// key with many jobs does not occupy all of them. Put it before the guards, in the same list:
//
//	config.Middleware = []rivertype.Middleware{rivermw.Wake[pgx.Tx](config), account}
//
// TTx is the type of the transactions of the client, and config the Config for river.NewClient. When
// a job comes, Wake reads its Queues, FetchPollInterval, RescueStuckJobsAfter and Schema. River runs
// the list of river.Worker.Middleware around that of river.Config.Middleware, so a Wake in the second
// list has no effect on guards in the first one. The Observer then gets event.Misconfigured.
//
// At most a third of the workers of a queue in a process (at least one) wait for busy keys. Every
// other job whose key is busy is parked: River snoozes it, and its worker takes another job. No
// attempt is used up. The parked jobs of a key are stored next to the key, in the order of their
// first parking. A hold wakes the next ones when it begins, and again when it ends and no call waits
// for the key. A woken job goes to the end of its queue. Jobs that are woken together may change
// places.
//
//   - It applies to all guards of this package with [RetryLater].
//   - River does not tell its workers about a woken job. They find it when they look for jobs again:
//     when one of them ends a job and all were busy, when a job is inserted, or after
//     FetchPollInterval (1 s). If that is longer than the work of the jobs that may wait for a key,
//     the key is idle in between. The Observer gets event.Misconfigured, once for a queue, with a
//     better value. FetchCooldown (100 ms) must not be longer.
//   - A key has at most 10,000 parked jobs. A further job is snoozed as without Wake.
//   - If several databases with River share the keys of a Redis, the IDs of their jobs may be equal.
//     A job can then lose its place, and comes back by itself.
//
// A parked job also comes back by itself, for example after the death of a holder:
//
//	delay = (lease, or rest of MinHold) + mean hold × jobs in front, plus up to 25 %
//
// The rest of MinHold, and all jobs in front together, count for at most 10 min each.
//
// The field holdfast of the job's metadata says why it waits. A job that comes back by itself may be
// done when a late wake arrives, and River then works it again. A guard does not run such a job if
// it was parked on its key and has succeeded less than 30 s ago, even if an operator works it again
// by hand. The Observer gets event.RerunSkipped. Use [Once] if a later second run does harm.
//
// Wake panics if config is nil.
func Wake[TTx any](config *river.Config) rivertype.WorkerMiddleware {
	if config == nil {
		panic("rivermw: Wake: config must not be nil")
	}
	return &waker[TTx]{config: config, pools: map[poolKey[TTx]]*pool{}}
}

type wakeKey struct{}

// pools has the parking of the queues of River.
type pools interface {
	// delivery returns the delivery of a job, or nil if it cannot be parked.
	delivery(ctx context.Context, queue string, r parking.Request) *parking.Delivery
	rescueAfter() time.Duration
}

// waker is what Wake returns. mu guards pools.
type waker[TTx any] struct {
	river.MiddlewareDefaults

	config        *river.Config
	inside, other sync.Once // report that Wake is inside of a guard, and that the client is another one

	mu    sync.Mutex
	pools map[poolKey[TTx]]*pool
}

// poolKey names a queue of a client: its workers are its own.
type poolKey[TTx any] struct {
	client *river.Client[TTx]
	queue  string
}

// pool is the parking of the workers of a queue.
type pool struct {
	*parking.Pool

	idle sync.Once // reports that FetchPollInterval is too long
}

// Work implements rivertype.WorkerMiddleware.
func (w *waker[TTx]) Work(ctx context.Context, _ *rivertype.JobRow, doInner func(context.Context) error) error {
	if outer, inside := ctx.Value(guardedKey{}).(guarded); inside {
		w.inside.Do(func() {
			report(ctx, outer.locks, "rivermw: Wake is inside of a guard, so the jobs of that guard are not parked: put it before the guards, in the same list (Worker.Middleware is around Config.Middleware)")
		})
	}
	return doInner(context.WithValue(ctx, wakeKey{}, pools(w)))
}

func (w *waker[TTx]) delivery(ctx context.Context, queue string, r parking.Request) *parking.Delivery {
	client, err := river.ClientFromContextSafely[TTx](ctx)
	if err != nil {
		w.other.Do(func() {
			report(ctx, r.Locks, fmt.Sprintf("rivermw: Wake: ctx has no River client with transactions of type %T, so jobs are not parked", *new(TTx)))
		})
		return nil
	}
	p, poll := w.pool(client, queue), w.poll(queue)
	v := p.Delivery(r)
	if waiting, each, idle := v.Idle(); idle {
		p.idle.Do(func() {
			better := max(time.Duration(waiting)*each/2, 10*time.Millisecond)
			report(ctx, r.Locks, fmt.Sprintf(
				"rivermw: FetchPollInterval of queue %q is %v, longer than the work of the %d jobs that may wait for a key here (%v each): a key with parked jobs is idle between them; %v keeps it busy, for FetchCooldown too",
				queue, poll, waiting, each.Round(time.Millisecond), better.Round(time.Millisecond)))
		})
	}
	return v
}

func report(ctx context.Context, locks *lockcore.Locker, problem string) {
	access.Of(locks).Report(ctx, event.Misconfigured{Problem: problem})
}

func (w *waker[TTx]) pool(client *river.Client[TTx], queue string) *pool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := poolKey[TTx]{client, queue}
	p := w.pools[k]
	if p == nil {
		deployment := "river"
		if w.config.Schema != "" {
			deployment += "." + w.config.Schema
		}
		p = &pool{Pool: parking.New(parking.Options{
			Queue: jobs[TTx]{client}, Name: "rivermw", Deployment: deployment, Workers: w.config.Queues[queue].MaxWorkers,
			Check: w.poll(queue), Late: scheduleEvery,
		})}
		w.pools[k] = p
	}
	return p
}

func (w *waker[TTx]) poll(queue string) time.Duration {
	return cmp.Or(w.config.Queues[queue].FetchPollInterval, w.config.FetchPollInterval, pollInterval)
}

func (w *waker[TTx]) rescueAfter() time.Duration {
	return cmp.Or(max(w.config.RescueStuckJobsAfter, 0), rescueAfter)
}

// jobs finds and wakes the parked jobs of a River client.
type jobs[TTx any] struct{ client *river.Client[TTx] }

// Lookup implements parking.Queue.
func (q jobs[TTx]) Lookup(task string) parking.Task {
	ctx, cancel, id := q.call(task)
	defer cancel()
	job, err := q.client.JobGet(ctx, id)
	switch {
	case errors.Is(err, rivertype.ErrNotFound):
		return parking.Task{State: parking.Gone}
	case err != nil:
		return parking.Task{}
	}
	n := noteOf(job)
	t := parking.Task{
		State: parking.Other, LastError: n.Waits, Again: job.ScheduledAt, Kept: true, Completed: n.Ran,
		Queue: job.Queue + "/",
	}
	switch job.State {
	case rivertype.JobStateRunning:
		t.State = parking.Running
	case rivertype.JobStateScheduled:
		t.State = parking.Delayed
	case rivertype.JobStateAvailable:
		t.State = parking.Pending
		if time.Until(job.ScheduledAt) > 0 { // snoozed for up to 5 s
			t.State = parking.Delayed
		}
	default: // a job that has failed waits for its next attempt, and is not parked
	}
	return t
}

// Run implements parking.Queue. JobRetry also works jobs that are completed, canceled or discarded.
//
// The row is locked first, because JobRetry would also revive a job that an operator has canceled since
// Lookup.
func (q jobs[TTx]) Run(task string) (found bool) {
	ctx, cancel, id := q.call(task)
	defer cancel()
	driver := q.client.Driver()
	exec, err := driver.GetExecutor().Begin(ctx)
	if err != nil {
		return true
	}
	defer func() { _ = exec.Rollback(context.WithoutCancel(ctx)) }()
	tx := driver.UnwrapTx(exec)
	job, err := q.client.JobUpdateTx(ctx, tx, id, nil)
	if err == nil && job.FinalizedAt == nil {
		if _, err = q.client.JobRetryTx(ctx, tx, id); err == nil {
			err = exec.Commit(ctx)
		}
	}
	return !errors.Is(err, rivertype.ErrNotFound)
}

// call returns the ctx of a call of River, and the ID of a job: 0, which no job has, if the task is
// of other code.
func (jobs[TTx]) call(task string) (ctx context.Context, cancel context.CancelFunc, id int64) {
	ctx, cancel = context.WithTimeout(context.Background(), lookTime)
	_, last, _ := strings.Cut(task, "/")
	id, _ = strconv.ParseInt(last, 10, 64)
	return ctx, cancel, id
}

// note is the field holdfast of the metadata of a job that has waited for its key.
type note struct {
	Waits string    `json:"waits,omitempty"` // why; the text of its last parking
	Ran   time.Time `json:"ran,omitzero"`    // when its last run began, or succeeded
}

const noteField = "holdfast"

func noteOf(job *rivertype.JobRow) (n note) {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(job.Metadata, &metadata) == nil {
		_ = json.Unmarshal(metadata[noteField], &n)
	}
	return n
}

// set stores n with what River stores at the end of the delivery. Outside of River it does nothing.
//
// PostgreSQL has no NUL in jsonb: one would make River fail to store the ends of all jobs of a batch.
func (n note) set(ctx context.Context) {
	n.Waits = strings.ReplaceAll(n.Waits, "\x00", `\x00`)
	_ = river.MetadataSet(ctx, noteField, n)
}

// ended stores how the run of a job with the note n has ended. After a failure the job is not known
// to be parked. If it is snoozed, a guard inside may have parked it.
func (n note) ended(ctx context.Context, answer error) {
	switch {
	case answer == nil:
		note{n.Waits, time.Now()}.set(ctx)
	case !errors.Is(answer, (*rivertype.JobSnoozeError)(nil)):
		note{}.set(ctx)
	}
}

// spread returns d or up to a quarter more, so that jobs do not come back together.
func spread(d time.Duration) time.Duration { return d + rand.N(d/4+1) }
