// Command worker shows on a real asynq server why holdfast exists. A handler outlives its deadline,
// first without and then with holdfast. Two workers take turns on one account. One hot account has
// many tasks. A payment is sent twice.
//
//	go run ./examples/worker                        on a Redis inside the process
//	go run ./examples/worker -redis localhost:6379  on your Redis; it removes the keys that it makes
//	go run ./examples/worker -redis A,B,C           locks on a majority of servers (lockcore.NewQuorum)
//	go run ./examples/worker -serve localhost:8321  with the page of package inspect, until Ctrl-C
//
// On a majority of servers it shows only what runs alone, also while one server does not reply: Once
// and Parking need one Redis. asynq needs one Redis too, and uses A.
//
// It checks its own numbers, and exits with 1 if they are not as expected. This file has all that
// a program with asynq needs. The other files run the chapters, draw the hot account and serve the
// page.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

func main() { program().Main() }

func program() stage.Program {
	var page string
	return stage.Program{
		Name: "worker", Quorum: true,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&page, "serve", "", "`host:port` of a page with the keys and tasks, such as localhost:8321; default: none")
		},
		Play: func(ctx context.Context, s *stage.Stage) error {
			s.Say("asynq on %s", s.Where())
			if page == "" {
				return play(ctx, s)
			}
			return serve(ctx, s, page, play)
		},
	}
}

func play(ctx context.Context, s *stage.Stage) error {
	chapters := []stage.Chapter[row]{
		{
			Title: "asynq alone",
			Tell:  act{queue: "alone", work: asynqAlone, tasks: reports}.on(s).play,
			Right: func(r row) bool { return r.runs == 4 && r.most > 1 && r.state == "archived" },
		},
		{
			Title: "with holdfast",
			Tell:  act{queue: "once", work: withHoldfast, tasks: reports}.on(s).play,
			Right: completed(1),
		},
		{
			Title: "two workers, one account",
			Tell:  act{queue: "turns", workers: 2, work: takingTurns, tasks: charges, together: true}.on(s).play,
			Right: completed(4),
		},
		{
			Title: "one hot account",
			Tell:  hotAccount(s),
			Right: completed(hotTasks),
		},
		{
			Title: "one payment, sent twice",
			Tell:  act{queue: "payment", work: paidOnce, tasks: payments}.on(s).play,
			Right: completed(1),
		},
	}
	if s.Quorum != nil {
		chapters = onMajority(s, chapters[0], chapters[2])
	}
	return stage.Tell(ctx, s, "runs\tmost at once\tfinal state", chapters)
}

// onMajority returns the chapters for a majority of servers.
func onMajority(s *stage.Stage, alone, turns stage.Chapter[row]) []stage.Chapter[row] {
	return []stage.Chapter[row]{
		alone,
		{
			Title: "with holdfast: one run at a time",
			Tell:  act{queue: "exclusive", work: oneAtATime, tasks: reports}.on(s).play,
			Right: func(r row) bool { return r.runs > 1 && r.most == 1 && r.state == "archived" },
		},
		turns,
		{
			Title: "the same, and one server does not reply",
			Tell:  act{queue: "cut", workers: 2, work: takingTurns, tasks: charges, together: true, cut: true}.on(s).play,
			Right: completed(4),
		},
	}
}

func completed(runs int) func(row) bool {
	return func(r row) bool { return r == row{runs, 1, "completed"} }
}

var (
	reports  = tasks("report", "", []string{"report-1"}, asynq.Timeout(time.Second), asynq.MaxRetry(3))
	charges  = tasks("charge", `{"account_id": 42}`, []string{"charge-1", "charge-2", "charge-3", "charge-4"})
	payments = tasks("charge", `{"payment_id": 7, "account_id": 42}`, []string{"first", "second"})
)

func tasks(kind, payload string, ids []string, opts ...asynq.Option) (ts []*asynq.Task) {
	for _, id := range ids {
		ts = append(ts, asynq.NewTask(kind, []byte(payload), slices.Concat(opts, []asynq.Option{asynq.TaskID(id)})...))
	}
	return ts
}

// report takes 3 s and ignores its ctx, like code that waits for something slow.
func (w *worker) report(context.Context, *asynq.Task) error {
	run, now := w.enter()
	defer w.leave()
	w.say("run %d begins, %d at once", run, now)
	time.Sleep(3 * time.Second)
	w.say("run %d returns nil", run)
	return nil
}

// The deadline of the task is 1 s. Then asynq gives up the attempt, but cannot stop it. The retry
// runs at the same time, and asynq drops the result of the run that it gave up.
func asynqAlone(w *worker) (asynq.Config, asynq.Handler) {
	return w.config, asynq.HandlerFunc(w.report)
}

// The same task under Once. Its key is held until the handler has returned, so a retry finds the
// key busy, which is no failure. The result of the late run is recorded, so that the next retry
// replays it.
func withHoldfast(w *worker) (asynq.Config, asynq.Handler) {
	once := asynqmw.Once(w.locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})
	return asynqmw.Configure(w.config), once(asynq.HandlerFunc(w.report))
}

// The same task under Exclusive, for a majority of servers, which does not support Once. A retry waits
// for the run that asynq gave up, and then runs too, because no result is recorded.
func oneAtATime(w *worker) (asynq.Config, asynq.Handler) {
	alone := asynqmw.Exclusive(w.locks, asynqmw.ByTaskID(), asynqmw.ExclusiveOptions{})
	return asynqmw.Configure(w.config), alone(asynq.HandlerFunc(w.report))
}

// Two workers charge one account four times. Each has a Locker, like two processes.
func takingTurns(w *worker) (asynq.Config, asynq.Handler) {
	account := asynqmw.Exclusive(w.locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	return asynqmw.Configure(w.config), account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		run, now := w.enter()
		defer w.leave()
		w.say("worker %s charges account 42, charge %d, %d at once", w.name, run, now)
		time.Sleep(400 * time.Millisecond)
		return nil
	}))
}

// One account has as many tasks as all others together. Without parking its tasks occupy all
// workers, and the other accounts wait although their keys are free. With parking at most a third
// of the workers wait, and the other tasks of the hot account are parked.
func chargeAll(w *worker, parking ...asynqmw.Parking) (asynq.Config, asynq.Handler) {
	account := asynqmw.Exclusive(w.locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	w.config.Concurrency = 6
	config := asynqmw.Configure(w.config)
	if len(parking) > 0 {
		config = asynqmw.ConfigureParking(w.config, parking[0])
	}
	return config, account(asynq.HandlerFunc(w.charge))
}

// Two tasks for one payment: the producer sent the second one because it got no reply to the first.
// Exclusive is the outer wrapper, so a payment that waits for its account has not begun.
func paidOnce(w *worker) (asynq.Config, asynq.Handler) {
	payment := asynqmw.Once(w.locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	account := asynqmw.Exclusive(w.locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	return asynqmw.Configure(w.config), account(payment(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		run, _ := w.enter()
		defer w.leave()
		w.say("run %d charges payment 7", run)
		return asynqmw.SetResult(ctx, fmt.Appendf(nil, "receipt %d", 1000+run))
	})))
}
