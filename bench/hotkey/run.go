package main

import (
	"context"
	"errors"
	"time"
)

// leastLimit is the least limit of a run, see load.limit.
const leastLimit = time.Minute

// limit returns when a run of l ends at the latest: after factor times its least time.
func (l load) limit(factor float64) time.Duration {
	return max(time.Duration(factor*float64(l.least())), leastLimit)
}

// run runs l for at most limit.
func (r *rig) run(ctx context.Context, l load, limit time.Duration) (result, error) {
	if err := r.flush(ctx); err != nil {
		return result{}, err
	}
	tasks := l.tasks()
	for i := range l.backlog {
		tasks = append(tasks, backlogTask(i))
	}
	for _, t := range tasks {
		if err := r.enqueue(ctx, t); err != nil {
			return result{}, err
		}
	}
	c := newCrew(order{Queue: r.queue.Addr, Locks: r.locks.Addr, Policy: l.policy, Workers: l.workers, Check: l.check})
	var ps []*process
	defer func() {
		for _, p := range ps {
			p.kill()
		}
	}()
	for range l.procs {
		p, err := c.start(ctx)
		if err != nil {
			return result{}, err
		}
		ps = append(ps, p)
	}
	if !c.until(ctx, 10*time.Second, func() bool { return c.counts[opReady] == l.procs }) {
		return result{}, errors.Join(errors.New("hotkey: a worker does not start"), context.Cause(ctx))
	}
	return r.measure(ctx, l, limit, c, ps)
}

// measure makes ps serve, and counts until the load, without its backlog, is done.
func (r *rig) measure(ctx context.Context, l load, limit time.Duration, c *crew, ps []*process) (result, error) {
	locks0, err1 := r.executed(ctx, r.locks)
	queue0, err2 := r.executed(ctx, r.queue)
	start := time.Now()
	err3 := all(ps, wordServe)
	if err := errors.Join(err1, err2, err3); err != nil {
		return result{}, err
	}
	replaced := 0
	for done := false; !done && ctx.Err() == nil && time.Since(start) < limit; {
		var backlog int
		done = c.until(ctx, 50*time.Millisecond, func() bool {
			backlog = c.backlog
			return len(c.ended) == l.hotTasks+l.others
		})
		for ; l.standing && !done && replaced < backlog; replaced++ {
			if err := r.enqueue(ctx, backlogTask(l.backlog+replaced)); err != nil {
				return result{}, err
			}
		}
	}
	res := result{load: l, took: time.Since(start)}
	err1 = all(ps, wordCount)
	c.until(ctx, 5*time.Second, func() bool { return c.counts[opSent] == l.procs })
	locks1, err2 := r.executed(ctx, r.locks)
	queue1, err3 := r.executed(ctx, r.queue)
	res.executed, res.queue = float64(locks1-locks0)/float64(l.hotTasks), float64(queue1-queue0)/float64(l.hotTasks)
	err := errors.Join(err1, err2, err3, r.account(ctx, c, &res), context.Cause(ctx))
	res.judge(c.told(), start)
	return res, err
}

func all(ps []*process, word string) (err error) {
	for _, p := range ps {
		err = errors.Join(err, p.say(word))
	}
	return err
}

// account reads the outcomes of the tasks from asynq. asynq stores an outcome shortly after the
// handler has returned, so account waits up to 3 s.
func (r *rig) account(ctx context.Context, c *crew, res *result) error {
	res.unstored = 1
	for late := time.Now().Add(3 * time.Second); res.unstored > 0 && time.Now().Before(late) && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond)
		c.mu.Lock()
		ended := len(c.ended) + c.backlog
		c.mu.Unlock()
		info, err := r.inspector.GetQueueInfo("default")
		if err != nil {
			return err
		}
		res.archived, res.retries, res.unstored = info.Archived, info.FailedTotal-info.Archived, max(ended-info.Completed, 0)
	}
	return nil
}
