package asynqmw

import (
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

const (
	maxWakers    = 8                      // goroutines of a server that wake tasks
	maxWakes     = 10_000                 // keys in wakers.jobs; the tasks of further keys come back by themselves
	wakeDone     = 64                     // tasks of a done key that are woken at a time: their handlers do not run
	maxLook      = 100 * time.Millisecond // the age up to which the looked-up state of a task is used
	firstPause   = 2 * time.Millisecond   // before the next lookup of an active task
	longestPause = 64 * time.Millisecond
)

// wakers are the goroutines that wake parked tasks. The callers do not wait for them, because
// asynq's Inspector may block for seconds and does not take a ctx. At most one waker works for a
// key at a time. parking.mu guards the fields.
//
// A waker removes the job of a key from jobs before it begins. So a job that is added while a waker
// works for the key is not lost: this or another waker does it afterwards.
type wakers struct {
	jobs    map[lockKey]wakeJob
	busy    map[lockKey]bool
	running int
}

// wakeJob is the work of a waker for one key.
type wakeJob struct {
	want    int      // how many tasks are to be woken, including those that are
	entries []string // marked as woken; asynq does not run them yet
}

// wake makes a waker wake tasks of k until want are woken. entries are already marked as woken.
func (p *parking) wake(k lockKey, want int, entries []string) {
	if want == 0 && len(entries) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.wakers
	j, waits := w.jobs[k]
	if !waits && len(w.jobs) >= maxWakes {
		return
	}
	if w.jobs == nil {
		w.jobs, w.busy = map[lockKey]wakeJob{}, map[lockKey]bool{}
	}
	w.jobs[k] = wakeJob{max(j.want, want), append(j.entries, entries...)}
	if w.running < maxWakers && !w.busy[k] {
		w.running++
		// Owner: p. It ends when there is no job. Each call ends with the Locker, or by the timeouts of
		// the Inspector's client.
		go p.runWakes()
	}
}

func (p *parking) runWakes() {
	for {
		k, j, ok := p.nextWake()
		if !ok {
			return
		}
		p.wakeKey(k, j)
		p.mu.Lock()
		delete(p.wakers.busy, k)
		p.mu.Unlock()
	}
}

// nextWake removes the job of a key for which no other waker works. Without one the waker ends.
func (p *parking) nextWake() (k lockKey, j wakeJob, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.wakers
	for k, j := range w.jobs {
		if !w.busy[k] {
			delete(w.jobs, k)
			w.busy[k] = true
			return k, j, true
		}
	}
	w.running--
	return lockKey{}, wakeJob{}, false
}

// wakeKey wakes tasks of k until j.want are woken. It removes the entries of tasks that are no
// longer parked, and wakes others instead.
func (p *parking) wakeKey(k lockKey, j wakeJob) {
	entries, stale := j.entries, []string(nil)
	for range maxParked { // each round removes an entry
		if len(entries) == 0 {
			r, err := p.unpark(k.locks.Internal().Context(), k, stale, j.want)
			if err != nil || len(r.Wake) == 0 {
				return
			}
			entries, stale = r.Wake, nil
		}
		for _, entry := range entries {
			if !p.wakeTask(k, entry) {
				stale = append(stale, entry)
			}
		}
		if entries = nil; len(stale) == 0 {
			return
		}
	}
}

// wakeTask makes asynq run a task that is parked on k. It returns false if the task is not parked
// on k: its entry must be removed.
//
//   - A pending task is not parked. Its queue may be paused or have a long backlog, and its entry
//     would count as woken meanwhile, so that no task of another queue would be woken.
//   - RunTask also runs tasks that are completed, archived or scheduled, so GetTaskInfo looks up
//     the state first. A task that comes back by itself may end between the two commands: then
//     RunTask runs it again. If the lookup took longer than maxLook, it is repeated.
func (p *parking) wakeTask(k lockKey, entry string) (kept bool) {
	queue, id, ok := p.task(entry)
	if !ok {
		return false
	}
	for pause := firstPause; pause <= longestPause; pause *= 2 {
		looked := time.Now()
		info, err := p.inspector.GetTaskInfo(queue, id)
		switch {
		case missing(err):
			return false
		case err != nil:
			return true
		case info.State == asynq.TaskStateActive: // it waits for the key, or asynq has not yet moved it to retry
			time.Sleep(pause)
			continue
		case info.State != asynq.TaskStateRetry || !strings.Contains(info.LastErr, parkedOn(k.kind, k.name)):
			return false
		case time.Since(looked) > maxLook:
			continue
		}
		return !missing(p.inspector.RunTask(queue, id))
	}
	return true
}

func missing(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound)
}
