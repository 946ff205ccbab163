package parking

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxWakers    = 8                      // goroutines of a server that wake tasks
	maxWakes     = 10_000                 // keys in wakers.jobs; the tasks of further keys come back by themselves
	wakeDone     = 64                     // tasks of a done key that are woken at a time: their handlers do not run
	maxLook      = 100 * time.Millisecond // the age up to which the looked-up state of a task is used
	dueSoon      = 500 * time.Millisecond
	firstPause   = 2 * time.Millisecond // before the next lookup of an active task
	longestPause = 64 * time.Millisecond
	maxPause     = 5 * time.Second // between two looks at a free key
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
	want    int      // how many tasks must count as woken, including those that already do
	entries []string // of tasks that are marked as woken, but that asynq does not run yet
	marked  int64    // when the newest of these marks was set, see backend.UnparkReply
	free    bool     // no task has the key: the next hold may depend on this job
}

// freeKey is a free key with parked tasks. A task that counts as woken may end without the key: it
// is deleted, or a Once around this guard replays it. Then no hold follows that wakes the next
// task. So the key is looked at again, until a hold of this server begins or no task is parked.
type freeKey struct {
	since time.Time
	want  int
	pause time.Duration // before the next look
	timer bool          // the next look is set
}

// wake makes a waker wake tasks of k until want are woken. The entries of r are already marked as
// woken.
func (p *Pool) wake(k lockKey, want int, r backend.UnparkReply) {
	p.add(k, wakeJob{want: want, entries: r.Wake, marked: r.Marked})
}

// wakeFree is wake for a key that no task has.
func (p *Pool) wakeFree(k lockKey, want int) { p.add(k, wakeJob{want: want, free: true}) }

func (p *Pool) add(k lockKey, more wakeJob) {
	if more.want == 0 && len(more.entries) == 0 {
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
	w.jobs[k] = wakeJob{max(j.want, more.want), append(j.entries, more.entries...), max(j.marked, more.marked), j.free || more.free}
	if w.running < maxWakers && !w.busy[k] {
		w.running++
		// Owner: p. It ends when there is no job. Each call ends with the Locker, or by the
		// timeouts of the Inspector's client.
		go p.runWakes()
	}
}

func (p *Pool) runWakes() {
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

// nextWake removes and returns the job of a key for which no other waker works. If there is none,
// ok is false and the waker ends.
func (p *Pool) nextWake() (k lockKey, j wakeJob, ok bool) {
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
// longer parked, and wakes others instead. If such a task is parked on k again before its entry is
// removed, its entry stays, because it no longer has the mark that this waker found. Every lookup
// of a job happens after the newest mark of the job.
func (p *Pool) wakeKey(k lockKey, j wakeJob) {
	ctx, entries, marked := k.locks.Internal().Context(), j.entries, j.marked
	fresh, waits := time.Duration(0), false
	if j.free {
		fresh, waits = p.lookAgain(k, j.want)
	}
	for range maxParked { // each round but the last one removes an entry
		if len(entries) == 0 {
			r, err := p.unpark(ctx, k, backend.UnparkRequest{Woken: j.want, Fresh: fresh})
			if err == nil && r.Count == 0 {
				p.stopLooking(k)
			}
			if err != nil || len(r.Wake) == 0 {
				return
			}
			entries, marked = r.Wake, r.Marked
		}
		removed := 0
		for _, entry := range entries {
			if p.wakeTask(k, entry, waits) {
				continue
			}
			r, err := p.unpark(ctx, k, backend.UnparkRequest{Remove: []string{entry}, Marked: marked}) // at once, because the mark soon ends
			if err != nil {
				return
			}
			removed += r.Removed
		}
		if entries = nil; removed == 0 {
			return
		}
	}
}

// lookAgain sets the next look at a free key, unless it is set. It returns the age from which on a
// mark is checked, and whether a pending task still counts as woken.
func (p *Pool) lookAgain(k lockKey, want int) (fresh time.Duration, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := max(2*p.check, 100*time.Millisecond) // a woken task has begun by then if its queue has no backlog
	f := p.free[k]
	if f == nil {
		f = &freeKey{since: time.Now(), pause: first}
		if len(p.free) < maxKnown {
			p.free[k] = f
		}
	}
	f.want = max(f.want, want)
	age := time.Since(f.since)
	if ctx := k.locks.Internal().Context(); ctx.Err() != nil || age > 2*maxExtraDelay {
		delete(p.free, k) // the tasks have come back by themselves meanwhile
	} else if !f.timer {
		f.timer = true
		time.AfterFunc(f.pause, func() { p.look(k, f) })
		f.pause = min(2*f.pause, maxPause)
	}
	return first, age < backend.WokenTime
}

// look is called when a look at a free key is due.
func (p *Pool) look(k lockKey, f *freeKey) {
	p.mu.Lock()
	due, want := p.free[k] == f, f.want
	f.timer = false
	p.mu.Unlock()
	if due {
		p.wakeFree(k, want)
	}
}

func (p *Pool) stopLooking(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.free, k)
}

// wakeTask makes asynq run a task that is parked on k. It returns false if the task is not parked
// on k: its entry must be removed.
//
//   - A pending task will run, but its queue may be paused or have a long backlog. So if waits is
//     false, wakeTask returns false for it. Otherwise its entry would count as woken for long, and
//     no task of another queue would be woken.
//   - RunTask also runs tasks that are completed, archived or scheduled, so GetTaskInfo looks up
//     the state first. Between the two commands the task may end, because it came back by itself or
//     a waker of another server woke it. If it has a Retention, RunTask makes asynq deliver it
//     again, see ranAlready. To make that rare, wakeTask does not wake a task with a Retention that
//     comes back by itself within dueSoon. If the lookup took longer than maxLook, it is repeated.
func (p *Pool) wakeTask(k lockKey, entry string, waits bool) (kept bool) {
	queue, id, ok := p.task(entry)
	if !ok {
		return false
	}
	for pause := firstPause; pause <= longestPause; pause *= 2 {
		looked := time.Now()
		info, err := p.inspector.GetTaskInfo(queue, id)
		switch {
		case missing(err):
			if errors.Is(err, asynq.ErrQueueNotFound) {
				p.reportInspector(k, queue)
			}
			return false
		case err != nil || waits && (info.State == asynq.TaskStatePending || info.State == asynq.TaskStateActive):
			return true
		case info.State == asynq.TaskStateActive: // it waits for the key, or asynq has not yet moved it to retry
			time.Sleep(pause)
			continue
		case info.State != asynq.TaskStateRetry || !strings.Contains(info.LastErr, parkedOn(k.kind, k.name)):
			return false
		case info.Retention > 0 && time.Until(info.NextProcessAt) < dueSoon:
			return false
		case time.Since(looked) > maxLook:
			continue
		}
		return !missing(p.inspector.RunTask(queue, id))
	}
	return true
}

// reportInspector reports once that the Inspector does not know the queue of a parked task.
func (p *Pool) reportInspector(k lockKey, queue string) {
	p.badInspector.Do(func() {
		hidden := k.locks.Internal()
		hidden.Report(hidden.Context(), lockcore.Misconfigured{Problem: fmt.Sprintf(
			"asynqmw: Parking.Inspector does not know queue %q of a parked task: it must use the Redis of the server; if servers on several Redis share keys, each needs its own Parking.Deployment", queue)})
	})
}

func missing(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound)
}
