package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// chapters are the parts of the program's output. right checks the result of a part, and want
// describes the expected result.
var chapters = []struct {
	title, want string
	tell        func(context.Context, *stage) (row, error)
	right       func(row) bool
}{
	{
		"asynq alone", "4 runs, several at once, archived", withoutHoldfast,
		func(r row) bool { return r.runs == 4 && r.most >= 2 && r.state == "archived" },
	},
	{
		"with holdfast", "1 run, completed", withHoldfast,
		func(r row) bool { return r.runs == 1 && r.most == 1 && r.state == "completed" },
	},
	{
		"two workers, one account", "4 runs, one at a time, completed", takingTurns,
		func(r row) bool { return r.runs == 4 && r.most == 1 && r.state == "completed" },
	},
	{
		"one hot account", "40 runs, one at a time, completed, and the others do not wait for them", hotAccount,
		func(r row) bool { return r.runs == hotTasks && r.most == 1 && r.state == "completed" },
	},
	{
		"one payment, sent twice", "1 run, completed", paidOnce,
		func(r row) bool { return r.runs == 1 && r.most == 1 && r.state == "completed" },
	},
}

// report takes 3 s and ignores its ctx, like code that waits for something slow.
func report(s *stage, c *counter) asynq.HandlerFunc {
	return func(context.Context, *asynq.Task) error {
		run, now := c.enter()
		defer c.leave()
		s.say("run %d begins, %d at once", run, now)
		time.Sleep(3 * time.Second)
		s.say("run %d returns nil", run)
		return nil
	}
}

// The deadline of the task is 1 s. Then asynq gives up the attempt, but cannot stop it. The retry
// runs beside it, and asynq drops the result of the run that it gave up.
func withoutHoldfast(ctx context.Context, s *stage) (row, error) {
	var c counter
	queue := s.queue("alone")
	stop, err := s.serve(s.config(queue), "report", report(s, &c))
	if err != nil {
		return row{}, err
	}
	defer stop()
	state, err := s.finish(ctx, queue, "report-1", asynq.NewTask("report", nil), asynq.Timeout(time.Second), asynq.MaxRetry(3))
	return c.row(state), err
}

// The same task under Once. Its key is held until the handler has returned. So a retry finds the
// key busy, which does not count as a failure. The result of the late run is recorded, so the next
// retry replays it.
func withHoldfast(ctx context.Context, s *stage) (row, error) {
	locks, closeLocks, err := s.locker(narrator{s})
	if err != nil {
		return row{}, err
	}
	defer closeLocks()
	once := asynqmw.Once(locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})

	var c counter
	queue := s.queue("once")
	stop, err := s.serve(asynqmw.Configure(s.config(queue)), "report", once(report(s, &c)))
	if err != nil {
		return row{}, err
	}
	defer stop()
	state, err := s.finish(ctx, queue, "report-1", asynq.NewTask("report", nil), asynq.Timeout(time.Second), asynq.MaxRetry(3))
	return c.row(state), err
}

// Two workers charge one account four times. Each has a separate server and Locker, like two
// processes.
func takingTurns(ctx context.Context, s *stage) (row, error) {
	var c counter
	queue := s.queue("turns")
	for _, worker := range []string{"A", "B"} {
		locks, closeLocks, err := s.locker(narrator{s})
		if err != nil {
			return row{}, err
		}
		defer closeLocks()
		account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
		charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			run, now := c.enter()
			defer c.leave()
			s.say("worker %s charges account 42, charge %d, %d at once", worker, run, now)
			time.Sleep(400 * time.Millisecond)
			return nil
		})
		stop, err := s.serve(asynqmw.Configure(s.config(queue)), "charge", account(charge))
		if err != nil {
			return row{}, err
		}
		defer stop()
	}
	var ids []string
	for i := range 4 {
		id := fmt.Sprintf("charge-%d", i+1)
		if err := s.enqueue(queue, id, asynq.NewTask("charge", []byte(`{"account_id": 42}`))); err != nil {
			return row{}, err
		}
		ids = append(ids, id)
	}
	state, err := s.await(ctx, queue, ids...)
	return c.row(state), err
}

// Two tasks for one payment: the producer sent the second one because it got no reply to the first.
// Exclusive is the outer wrapper, so a payment that waits for its account has not begun.
func paidOnce(ctx context.Context, s *stage) (row, error) {
	locks, closeLocks, err := s.locker(narrator{s})
	if err != nil {
		return row{}, err
	}
	defer closeLocks()
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})

	var c counter
	charge := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		run, _ := c.enter()
		defer c.leave()
		s.say("run %d charges payment 7", run)
		return asynqmw.SetResult(ctx, fmt.Appendf(nil, "receipt %d", 1000+run))
	})
	queue := s.queue("payment")
	stop, err := s.serve(asynqmw.Configure(s.config(queue)), "charge", account(payment(charge)))
	if err != nil {
		return row{}, err
	}
	defer stop()
	var state string
	for _, id := range []string{"first", "second"} {
		task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42}`))
		if state, err = s.finish(ctx, queue, id, task); err != nil {
			return row{}, err
		}
	}
	return c.row(state), nil
}
