package parking

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	maxWakers    = 8                      // goroutines that wake tasks
	maxWakes     = 10_000                 // keys in wakers.jobs; the tasks of further keys come back by themselves
	wakeDone     = 64                     // tasks of a done key that are woken at a time: their handlers do not run
	maxLook      = 100 * time.Millisecond // the age up to which the looked-up state of a task is used
	dueSoon      = 500 * time.Millisecond
	firstPause   = 2 * time.Millisecond // before the next lookup of an active task
	longestPause = 64 * time.Millisecond
	maxPause     = 5 * time.Second // between two checks of a free key
)

// wakers are the goroutines that wake parked tasks. The callers do not wait for them, because the
// queue may block for seconds. At most one waker works for a key at a time. Pool.mu guards the
// fields.
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
	entries []string // of tasks that are marked as woken, but that the queue does not run yet
	marked  int64    // when the newest of these marks was set, see backend.UnparkReply
	free    bool     // no task has the key: the next hold may depend on this job
}

// freeKey is a free key with parked tasks. A task that counts as woken may end without the key: it
// is deleted, or a Once around this guard replays it. Then no hold follows that wakes the next
// task. So the key is checked again, until a hold of this process begins or no task is parked.
type freeKey struct {
	since time.Time
	want  int
	pause time.Duration // before the next check
	timer bool          // the next check is set
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
	w.jobs[k] = wakeJob{max(j.want, more.want), append(j.entries, more.entries...), max(j.marked, more.marked), j.free || more.free} //planted:jobs-add-up
	if w.running < maxWakers && !w.busy[k] {
		w.running++
		// Owner: p. It ends when there is no job. Each command ends with the Locker, and each call
		// of the queue when the queue gives it up.
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
//
// A task of a slow queue has been pending for long. If tasks of other queues are parked on k, they
// are woken, and the slow one is no longer known to be parked. Another task of its own queue would
// only wait behind it. If there are none, its entry stays: otherwise a key would get more and more
// pending tasks, whatever its weight.
func (p *Pool) wakeKey(k lockKey, j wakeJob) {
	ctx, entries, marked := k.locks.ctx, j.entries, j.marked
	fresh, waits := time.Duration(0), false
	if j.free {
		fresh, waits = p.checkAgain(k, j.want)
	}
	var slow, queues []string // entries of tasks of slow queues, and the prefixes of these queues
	for range maxParked {     // each round but the last one removes an entry or finds a slow queue
		if len(entries) == 0 {
			r, err := p.unpark(ctx, k, backend.UnparkRequest{Woken: j.want, Fresh: fresh, Skip: queues})
			if err == nil && r.Count == 0 {
				p.stopChecking(k)
			}
			if err != nil || len(r.Wake) == 0 {
				return
			}
			if len(slow) > 0 {
				if _, err := p.unpark(ctx, k, backend.UnparkRequest{Remove: slow, Marked: marked}); err != nil {
					return
				}
				slow = nil
			}
			entries, marked = r.Wake, r.Marked
		}
		again := false
		for _, entry := range entries {
			kept, queue := p.wakeTask(k, entry, waits)
			if queue != "" {
				slow = append(slow, entry)
				if !slices.Contains(queues, queue) {
					queues, again = append(queues, queue), true
				}
			}
			if kept {
				continue
			}
			r, err := p.unpark(ctx, k, backend.UnparkRequest{Remove: []string{entry}, Marked: marked}) // at once, because the mark soon ends
			if err != nil {
				return
			}
			again = again || r.Removed > 0
		}
		if entries = nil; !again {
			return
		}
	}
}

// checkAgain sets the next check of a free key, unless it is set. It returns the age from which on a
// mark is checked, and whether a pending task still counts as woken.
func (p *Pool) checkAgain(k lockKey, want int) (fresh time.Duration, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := max(2*p.Check, 100*time.Millisecond) // a woken task has begun by then if its queue has no backlog
	f := p.free[k]
	if f == nil {
		f = &freeKey{since: time.Now(), pause: first}
		if len(p.free) < maxKnown {
			p.free[k] = f
		}
	}
	f.want = max(f.want, want)
	age := time.Since(f.since)
	if k.locks.ctx.Err() != nil || age > 2*maxExtraDelay {
		delete(p.free, k) // the tasks have come back by themselves meanwhile
	} else if !f.timer {
		f.timer = true
		time.AfterFunc(f.pause, func() { p.checkFree(k, f) })
		f.pause = min(2*f.pause, maxPause)
	}
	return first, age < backend.WokenTime
}

// checkFree is called when a check of a free key is due.
func (p *Pool) checkFree(k lockKey, f *freeKey) {
	p.mu.Lock()
	due, want := p.free[k] == f, f.want
	f.timer = false
	p.mu.Unlock()
	if due {
		p.wakeFree(k, want)
	}
}

func (p *Pool) stopChecking(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.free, k)
}

// wakeTask makes the queue run a task that is parked on k. It returns false if the task is not
// parked on k: its entry must be removed.
//
//   - A pending task will run, but its queue may be paused or have a long backlog. So if waits is
//     false, wakeTask returns the prefix of the entries of its queue, which is slow.
//   - Run may also run tasks that have completed, so Lookup returns the state first. Between the two
//     calls the task may end, because it came back by itself or a waker of another process woke it.
//     If the queue keeps it, Run makes the queue deliver it again, see RanAlready. To make that
//     rare, wakeTask does not wake such a task if it comes back by itself within dueSoon. If the
//     lookup took longer than maxLook, it is repeated.
func (p *Pool) wakeTask(k lockKey, entry string, waits bool) (kept bool, slow string) {
	task, ok := strings.CutPrefix(entry, p.prefix)
	if !ok {
		return false, ""
	}
	for pause := firstPause; pause <= longestPause; pause *= 2 {
		asked := time.Now()
		t := p.Queue.Lookup(task)
		if t.Problem != "" {
			p.problem.Do(func() { k.locks.hidden.Report(k.locks.ctx, event.Misconfigured{Problem: t.Problem}) })
		}
		switch {
		case t.State == Unknown || waits && (t.State == Pending || t.State == Running):
			return true, ""
		case t.State == Pending:
			return true, p.prefix + t.Queue
		case t.State == Running: // it waits for the key, or the queue has not yet moved it to the delayed tasks
			time.Sleep(pause)
			continue
		case t.State != Delayed || !strings.Contains(t.LastError, p.parkedOn(k)):
			return false, ""
		case t.Kept && time.Until(t.Again) < dueSoon:
			return false, ""
		case time.Since(asked) > maxLook:
			continue
		}
		return p.Queue.Run(task), ""
	}
	return true, ""
}
