package asynqmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Parking makes tasks wait for a busy key outside of the workers, so that a key with many tasks
// does not occupy all of them:
//
//	inspector := asynq.NewInspector(redis)
//	srv := asynq.NewServer(redis, asynqmw.ConfigureParking(asynq.Config{}, asynqmw.Parking{Inspector: inspector}))
//
// At most a third of the workers of a server (at least one) wait for busy keys. That is the bound
// for all keys together. Each key with parked tasks has a quota of them, in proportion to its
// Weight. Every other task whose key is busy is parked: asynq stores it as a retry, and its worker
// takes another task. No retry is used up. The parked tasks of a key are stored next to the key, in
// the order of their first parking. A hold wakes the next ones when it begins, and again when it
// ends and no call waits for the key. A woken task goes to the end of its queue. Tasks that are
// woken together may change places. If a task is pending for more than 10 s after it was woken, tasks
// of the key in other queues are woken before it.
//
//   - Parking applies to all guards of this package with [RetryLater]. A task on its last attempt
//     is not parked, because asynq would archive it. It waits in its worker up to its deadline,
//     beyond the third if necessary. So tasks with MaxRetry(0) may still occupy all workers.
//   - A parked task of [Exclusive] does not keep tasks of [Shared] out, unlike one that waits in
//     its worker. If readers arrive without a pause, do not park the writers.
//   - A task of [ExclusiveAll] or [LimitedAll] is parked on the key that is busy. When it is woken,
//     another of its keys may be busy. Then it gives up its place on the first key, and the next
//     task of that key is woken. So a task with several keys that are often busy may be parked
//     several times.
//   - A task with an asynq.Group is archived with an error instead of being parked, because asynq
//     would add it to its group instead of delivering it again.
//   - A key has at most 10,000 parked tasks. A further task is handled as without parking.
//   - The TTL of asynq.Unique continues while a task is parked. Choose a TTL that is longer than
//     the wait.
//   - If asynq finds no pending task, it looks again after TaskCheckInterval (1 s). If that is
//     longer than the work of the tasks that may wait for a key, the key is idle in between. The
//     Observer gets event.Misconfigured, once for a server, with a better value.
//   - If asynq servers with different Redis servers share keys, each Redis needs its own
//     Deployment. A server wakes only the tasks of its Deployment.
//
// A parked task also comes back by itself, for example after the death of a holder:
//
//	delay = (lease, or rest of MinHold) + mean hold × tasks in front, plus up to 25 %
//
// The rest of MinHold, and all tasks in front together, count for at most 10 min each. A task with a
// deadline comes back before that deadline.
//
// A guard does not run a task that was parked on its key and completed less than 30 s ago, even if
// an operator runs it by hand. The Observer gets event.RerunSkipped, and for asynq that is another
// completion. The reason is a late wake. A process wakes a task only if the Inspector says that the
// task is in retry, with the error of parking on this key. But before asynq runs it, the task may
// come back by itself or by another process, and complete. If it has a Retention, asynq then
// delivers it again. In three cases the guard does not recognize such a task:
//
//   - The task waits in its queue for longer than 30 s.
//   - The Inspector does not reply within 100 ms.
//   - The guard's process has seen no parked task of the key for 30 s.
//
// The task then runs again, but never together with another task of its key. Use [Once] if a second
// run does harm.
type Parking struct {
	// Inspector finds and wakes parked tasks. It must use the Redis of the asynq server, and must
	// stay open until the Lockers are closed. Required.
	Inspector *asynq.Inspector
	// Deployment names the Redis of the asynq server. If asynq servers with different Redis servers
	// share keys, give each Redis its own name. At most 128 bytes. Default: "".
	Deployment string
	// Weight returns the weight of a key, for example of a paying tenant: 1 to 100. If the workers
	// cannot run all tasks, the runs of two keys with parked tasks are in proportion to their
	// weights. No key gets more than its limit allows. So a few keys should have a weight above 1.
	// Tasks of [Throttled] come back at their own turn, so a weight has no effect on them. It is
	// not lockcore.Limit.Weight: a greater Limit.Weight makes a call take more of its limit. Weight
	// is called once for each key of a delivery, from several goroutines. For another number the
	// nearest bound is used, and the Observer gets event.Misconfigured. Default: 1 for each key.
	Weight func(guard.Key) int
}

// Validate reports every problem of p at once.
func (p Parking) Validate() error {
	var errs []error
	if p.Inspector == nil {
		errs = append(errs, errors.New("asynqmw: Parking.Inspector is nil, must be an Inspector of the server's Redis"))
	}
	if len(p.Deployment) > maxDeployment {
		errs = append(errs, fmt.Errorf("asynqmw: Parking.Deployment is %d bytes long, must be at most %d", len(p.Deployment), maxDeployment))
	}
	return errtext.Join(errs...)
}

const (
	maxDeployment = 128
	maxWeight     = 100
)

// server is the parking of one asynq server.
type server struct {
	*parking.Pool

	check    time.Duration // TaskCheckInterval
	reported sync.Once     // reports that check is too long
	weight   func(guard.Key) int
	bad      sync.Once // reports that weight has returned a bad number
}

// newServer returns the parking of a server with cfg. It panics if o is not valid.
func newServer(cfg asynq.Config, o Parking) *server {
	if err := o.Validate(); err != nil {
		panic(errtext.Prefix("asynqmw: ConfigureParking", err).Error())
	}
	workers := cfg.Concurrency
	if workers < 1 {
		workers = runtime.NumCPU() // as asynq does
	}
	check := cmp.Or(max(cfg.TaskCheckInterval, 0), time.Second)
	return &server{check: check, weight: o.Weight, Pool: parking.New(parking.Options{
		Queue: queue{o.Inspector}, Name: "asynqmw", Deployment: o.Deployment, Workers: workers,
		Check: check, Late: cmp.Or(max(cfg.DelayedTaskCheckInterval, 0), 5*time.Second),
	})}
}

// reportIdle reports once for a server that its TaskCheckInterval is too long to keep a key with
// parked tasks busy.
func (s *server) reportIdle(ctx context.Context, locks *lockcore.Locker, v *parking.Delivery) {
	waiting, each, idle := v.Idle()
	if !idle {
		return
	}
	s.reported.Do(func() {
		better := max(time.Duration(waiting)*each/2, 10*time.Millisecond)
		access.Of(locks).Report(ctx, event.Misconfigured{Problem: fmt.Sprintf(
			"asynqmw: asynq.Config.TaskCheckInterval was %v when Configure was called, longer than the work of the %d tasks that may wait for a key here (%v each): a key with parked tasks is idle between them; %v keeps it busy",
			s.check, waiting, each.Round(time.Millisecond), better.Round(time.Millisecond))})
	})
}

// weightOf returns the weight of k.
func (s *server) weightOf(ctx context.Context, locks *lockcore.Locker, k guard.Key) int {
	if s.weight == nil {
		return 1
	}
	w := s.weight(k)
	used := min(max(w, 1), maxWeight)
	if used != w {
		s.bad.Do(func() {
			access.Of(locks).Report(ctx, event.Misconfigured{Problem: fmt.Sprintf(
				"asynqmw: Parking.Weight returned %d for a key of class %q, must be between 1 and %d: %d is used", w, k.Class, maxWeight, used)})
		})
	}
	return used
}

// queue finds and wakes the parked tasks of all asynq queues in one Redis.
type queue struct{ inspector *asynq.Inspector }

// taskName returns the name of a task for package parking: its queue and its ID.
func taskName(queue, id string) string { return url.PathEscape(queue) + "/" + url.PathEscape(id) }

// parseTask is the inverse of taskName.
func parseTask(task string) (queue, id string, ok bool) {
	q, i, found := strings.Cut(task, "/")
	queue, errQueue := url.PathUnescape(q)
	id, errID := url.PathUnescape(i)
	return queue, id, found && errQueue == nil && errID == nil
}

// Lookup implements parking.Queue. It ends by the timeouts of the Inspector's client.
func (q queue) Lookup(task string) parking.Task {
	name, id, ok := parseTask(task)
	if !ok {
		return parking.Task{State: parking.Gone}
	}
	info, err := q.inspector.GetTaskInfo(name, id)
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound):
		return parking.Task{State: parking.Gone}
	case errors.Is(err, asynq.ErrQueueNotFound):
		return parking.Task{State: parking.Gone, Problem: fmt.Sprintf(
			"asynqmw: Parking.Inspector does not know queue %q of a parked task: it must use the Redis of the server; if servers on several Redis share keys, each needs its own Parking.Deployment", name)}
	case err != nil:
		return parking.Task{}
	}
	t := parking.Task{
		State: parking.Other, LastError: info.LastErr, Again: info.NextProcessAt, Kept: info.Retention > 0, Completed: info.CompletedAt, Deadline: info.Deadline,
		Queue: taskName(name, ""),
	}
	if info.Group != "" {
		t.Refused = fmt.Sprintf("asynqmw: the task has the Group %q, must have none: asynq would add it to that group instead of delivering it again", info.Group)
	}
	switch info.State {
	case asynq.TaskStatePending:
		t.State = parking.Pending
	case asynq.TaskStateActive:
		t.State = parking.Running
	case asynq.TaskStateRetry:
		t.State = parking.Delayed
	default: // a task that is scheduled, archived or completed is not parked
	}
	return t
}

// Run implements parking.Queue. RunTask also runs tasks that are completed, archived or scheduled.
// It ends by the timeouts of the Inspector's client.
func (q queue) Run(task string) (found bool) {
	name, id, _ := parseTask(task)
	err := q.inspector.RunTask(name, id)
	return !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound)
}
