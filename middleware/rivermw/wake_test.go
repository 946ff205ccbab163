//go:build unix

package rivermw_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
)

// guarded is a configuration with Wake and an Exclusive of the account.
func (w *world) guarded(cfg *river.Config, terms lockcore.Terms) *river.Config {
	cfg.Middleware = []rivertype.Middleware{
		rivermw.Wake[pgx.Tx](cfg),
		rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{Terms: terms}),
	}
	return cfg
}

// parked waits until the job is parked on the key.
func (w *world) parked(id int64) *rivertype.JobRow {
	w.Helper()
	return w.until(id, func(j *rivertype.JobRow) bool {
		return j.State == rivertype.JobStateScheduled && strings.Contains(string(j.Metadata), `rivermw: parked on key \"account:42\" with `)
	})
}

// A job whose key is busy is parked under the name river/QUEUE/ID, without an attempt. The end of the hold
// wakes it, long before it would come back. The locks are in PostgreSQL, or on a Redis.
// Shows: J3
func TestParked(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]func(*world) *lockcore.Locker{
		"postgres": func(w *world) *lockcore.Locker { return w.locker() },
		"redis": func(w *world) *lockcore.Locker {
			s := locktest.NewServer(w)
			w.locks = s.Locker(lockcore.Options{Observer: w.heard})
			return s.Locker(lockcore.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			release := locktest.Hold(t, locks(w), "account:42") // another process
			ran := make(chan int, 1)
			w.serve(w.guarded(config(3, charging(func(_ context.Context, job *river.Job[chargeArgs]) error {
				ran <- job.Attempt
				return nil
			})), noWait))
			id := w.insert(chargeArgs{Account: "42"})
			parked := w.parked(id)
			if parked.Attempt != 0 || parked.ScheduledAt.Sub(*parked.AttemptedAt) < 30*time.Second { // a lease
				t.Errorf("%+v", parked)
			}
			if h, err := w.locks.Inspect(t.Context(), event.KindExclusive, "account:42"); err != nil || h.Parked != 1 || h.OldestParked != fmt.Sprint("river/default/", id) {
				t.Errorf("%+v, %v", h, err)
			}
			release()
			job := w.ends(id, rivertype.JobStateCompleted)
			if attempt := <-ran; attempt != 1 || !job.AttemptedAt.Before(parked.ScheduledAt) {
				t.Errorf("%+v, metadata %s", job, job.Metadata)
			}
			p, u := locktest.EventsOf[event.Parked](w.heard), locktest.EventsOf[event.Unparked](w.heard)
			if len(p) == 0 || len(u) == 0 || p[0].Key != "account:42" || p[0].Name != "account" {
				t.Errorf("parked %+v, unparked %+v", p, u)
			}
		})
	}
}

// A queue is paused while its job is woken. The jobs that other queues have parked on the key do not wait
// for it.
// Shows: J3
func TestPausedQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := locktest.Hold(t, w.locker(), "account:42")
	cfg := config(3, charging(func(context.Context, *river.Job[chargeArgs]) error { return nil }))
	cfg.Queues["slow"] = river.QueueConfig{MaxWorkers: 3}
	w.serve(w.guarded(cfg, noWait))
	r, err := w.client.Insert(t.Context(), chargeArgs{Account: "42"}, &river.InsertOpts{Queue: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	w.parked(r.Job.ID) // before the other one
	id := w.insert(chargeArgs{Account: "42"})
	parked := w.parked(id)
	paused, stop := w.client.Subscribe(river.EventKindQueuePaused)
	defer stop()
	if err := w.client.QueuePause(t.Context(), "slow", nil); err != nil {
		t.Fatal(err)
	}
	<-paused
	release()
	if job := w.ends(id, rivertype.JobStateCompleted); !job.AttemptedAt.Before(parked.ScheduledAt) {
		t.Errorf("attempted at %v, not before %v", job.AttemptedAt, parked.ScheduledAt)
	}
	if job := w.job(r.Job.ID); job.State != rivertype.JobStateAvailable {
		t.Errorf("the job of the paused queue is %s", job.State)
	}
	if err := w.client.QueueResume(t.Context(), "slow", nil); err != nil {
		t.Fatal(err)
	}
	w.ends(r.Job.ID, rivertype.JobStateCompleted)
}

// Two clients of a process have tables in schemas of their own, so their jobs have the same IDs. Each wakes
// its own job.
// Shows: J3
func TestTwoClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := execute(t.Context(), w.dsn, "CREATE SCHEMA other"); err != nil {
		t.Fatal(err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(w.pool), &rivermigrate.Config{Schema: "other", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	release := locktest.Hold(t, w.locker(), "account:42")
	worlds := [2]*world{new(*w), new(*w)}
	var parked [2]*rivertype.JobRow
	for i, schema := range []string{"", "other"} {
		cfg := config(3, charging(func(context.Context, *river.Job[chargeArgs]) error { return nil }))
		cfg.Schema = schema
		worlds[i].serve(w.guarded(cfg, noWait))
		parked[i] = worlds[i].parked(worlds[i].insert(chargeArgs{Account: "42"}))
	}
	if parked[0].ID != parked[1].ID {
		t.Errorf("jobs %d and %d", parked[0].ID, parked[1].ID)
	}
	if h, err := w.locks.Inspect(t.Context(), event.KindExclusive, "account:42"); err != nil || h.Parked != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	release()
	for i, job := range parked {
		if done := worlds[i].ends(job.ID, rivertype.JobStateCompleted); !done.AttemptedAt.Before(job.ScheduledAt) {
			t.Errorf("job %d of client %d was not woken", job.ID, i)
		}
	}
}

// A job that was parked and has succeeded is worked again by a late wake. It does not run again, but
// 30 s later it would.
// Shows: J4
func TestLateWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := locktest.Hold(t, w.locker(), "account:42")
	ran := make(chan bool, 10)
	w.serve(w.guarded(config(3, charging(func(context.Context, *river.Job[chargeArgs]) error {
		ran <- true
		return nil
	})), noWait))
	id := w.insert(chargeArgs{Account: "42"})
	w.parked(id)
	release()
	w.ends(id, rivertype.JobStateCompleted)
	if _, err := w.client.JobRetry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.until(id, func(j *rivertype.JobRow) bool { return j.State == rivertype.JobStateCompleted && j.Attempt == 2 })
	if n := len(locktest.EventsOf[event.RerunSkipped](w.heard)); len(ran) != 1 || n != 1 {
		t.Errorf("%d runs, %d events", len(ran), n)
	}
	// Its note is an hour old: an operator works it again.
	if _, err := w.pool.Exec(t.Context(), `UPDATE river_job SET metadata = jsonb_set(metadata, '{holdfast,ran}', to_jsonb(now() - interval '1 hour'))`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.JobRetry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.until(id, func(j *rivertype.JobRow) bool { return j.State == rivertype.JobStateCompleted && j.Attempt == 3 })
	if len(ran) != 2 {
		t.Errorf("%d runs", len(ran))
	}
}

// A job is parked on its account, and then on its payment, which another job has. It gives the account
// back, and is woken each time.
func TestParkedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.locker()
	account, payment := locktest.Hold(t, other, "account:42"), locktest.HoldOnce(t, other, "charge/payment:7")
	cfg := config(3, charging(succeeds))
	cfg.Middleware = []rivertype.Middleware{
		rivermw.Wake[pgx.Tx](cfg),
		rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{Terms: noWait}),
		rivermw.Once(w.locks, byPayment, rivermw.OnceOptions{}),
	}
	w.serve(cfg)
	id := w.insert(chargeArgs{Account: "42", Payment: 7})
	w.parked(id)
	account()
	parked := w.until(id, func(j *rivertype.JobRow) bool {
		return j.State == rivertype.JobStateScheduled && !strings.Contains(string(j.Metadata), "parked on key")
	})
	if !strings.Contains(string(parked.Metadata), `rivermw: parked on once key \"charge/payment:7\" with `) {
		t.Errorf("metadata %s", parked.Metadata)
	}
	locktest.Hold(t, other, "account:42")()
	payment()
	if job := w.ends(id, rivertype.JobStateCompleted); snoozes(t, job) < 2 || !job.AttemptedAt.Before(parked.ScheduledAt) {
		t.Errorf("%+v, metadata %s", job, job.Metadata)
	}
}

// A parked job that fails is not woken before its next attempt is due.
func TestFailedIsNotParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := locktest.Hold(t, w.locker(), "account:42")
	work := charging(fails)
	cfg := w.guarded(config(3, work), noWait)
	cfg.MaxAttempts = 2
	w.serve(cfg)
	id := w.insert(chargeArgs{Account: "42"})
	w.parked(id)
	release()
	job := w.ends(id, rivertype.JobStateDiscarded)
	if len(job.Errors) != 2 || strings.Contains(string(job.Metadata), "parked on") {
		t.Errorf("%+v, metadata %s", job, job.Metadata)
	}
}

// River stops while a job waits for its key, by StopAndCancel or with the ctx of Start, or an operator
// cancels the job. It gets no key afterwards, and uses up no attempt.
// Shows: J6
func TestStopWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world, context.CancelFunc, int64) rivertype.JobState{
		"start": func(w *world, cancel context.CancelFunc, _ int64) rivertype.JobState {
			cancel()
			<-w.client.Stopped()
			return rivertype.JobStateAvailable
		},
		"stop": func(w *world, _ context.CancelFunc, _ int64) rivertype.JobState {
			if err := w.client.StopAndCancel(w.Context()); err != nil {
				w.Error(err)
			}
			return rivertype.JobStateAvailable
		},
		"cancel": func(w *world, _ context.CancelFunc, id int64) rivertype.JobState {
			if _, err := w.client.JobCancel(w.Context(), id); err != nil {
				w.Error(err)
			}
			return rivertype.JobStateCancelled
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			release := locktest.Hold(t, w.locker(), "account:42")
			cfg := config(1, charging(func(context.Context, *river.Job[chargeArgs]) error {
				t.Error("it runs")
				return nil
			}))
			cfg.Middleware = []rivertype.Middleware{rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}, Busy: rivermw.Fail})}
			ctx, cancel := context.WithCancel(t.Context())
			if err := w.newClient(cfg).Start(ctx); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cancel(); <-w.client.Stopped() })
			id := w.insert(chargeArgs{Account: "42"})
			if !w.eventually(func() bool {
				h, err := w.locks.Inspect(t.Context(), event.KindExclusive, "account:42")
				return err == nil && h.Queue > 0
			}) {
				t.Fatal("it does not wait")
			}
			state := end(w, cancel, id)
			if job := w.ends(id, state); job.State == rivertype.JobStateAvailable && (job.Attempt != 0 || len(job.Errors) != 0) {
				t.Errorf("%+v", job)
			}
			release()
			le, err := w.locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: time.Minute}) // it may be reserved for a moment
			if err != nil {
				t.Fatal(err)
			}
			_ = le.Release(t.Context())
		})
	}
}

// A job does not wait for so long that River gives it to another worker.
// Shows: J5
func TestWaitEndsBeforeRescue(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w := newWorld(t)
	locktest.Hold(t, w.locker(), "account:42")
	cfg := w.guarded(config(3, charging(succeeds)), lockcore.Terms{Wait: lockcore.Forever})
	cfg.JobTimeout, cfg.RescueStuckJobsAfter = time.Second, 4*time.Second
	w.serve(cfg)
	began := time.Now()
	id := w.insert(chargeArgs{Account: "42"})
	job := w.parked(id)
	if waited := time.Since(began); waited < 2*time.Second || job.Attempt != 0 || len(job.Errors) != 0 {
		t.Errorf("it waited %v: %+v", waited, job)
	}
}

// A worker was paused for so long that River gives its job to another one. The job does not run here,
// and nothing is stored for it, because it may run there.
// Shows: J5
func TestPausedWorker(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for name, held := range map[string]bool{"free": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if held {
				locktest.Hold(t, w.locker(), "account:42")
			}
			cfg := config(3, charging(func(context.Context, *river.Job[chargeArgs]) error {
				t.Error("it runs")
				return nil
			}))
			cfg.JobTimeout, cfg.RescueStuckJobsAfter = 100*time.Millisecond, 300*time.Millisecond
			cfg.LeaderElectionDisabled = true // the leader would give the job to another worker
			returned := make(chan error, 1)
			paused := func(ctx context.Context, job *rivertype.JobRow) (guard.Key, error) {
				time.Sleep(400 * time.Millisecond) // instead of SIGSTOP
				return byAccount(ctx, job)
			}
			cfg.Middleware = []rivertype.Middleware{
				rivermw.Wake[pgx.Tx](cfg),
				middlewareFunc(func(ctx context.Context, _ *rivertype.JobRow, doInner doInner) error {
					err := doInner(ctx)
					returned <- err
					return err
				}),
				rivermw.Once(w.locks, rivermw.ByJobID(), rivermw.OnceOptions{Mode: guard.AtMostOnce}),
				rivermw.Exclusive(w.locks, paused, rivermw.ExclusiveOptions{Terms: noWait}),
			}
			client := w.serve(cfg)
			id := w.insert(chargeArgs{Account: "42"})
			if err := <-returned; !errors.Is(err, lockcore.ErrNotRun) {
				t.Error(err)
			}
			if err := client.Stop(t.Context()); err != nil { // stores the results
				t.Fatal(err)
			}
			if job := w.job(id); job.State != rivertype.JobStateRunning || job.Attempt != 1 || len(job.Errors) != 0 {
				t.Errorf("%+v", job)
			}
			if h, err := w.locks.Inspect(t.Context(), event.KindOnce, "charge/job:"+fmt.Sprint(id)); err != nil || h.State == lockcore.StateDone || h.State == lockcore.StateAbandoned {
				t.Errorf("%+v, %v", h, err)
			}
			if !held {
				locktest.Hold(t, w.locks, "account:42")
			}
		})
	}
}

// The Observer gets event.Misconfigured once if Wake is inside of a guard, if its transactions are
// not those of the client, and if workers look for jobs too seldom.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	for want, build := range map[string]func(*world, *river.Config){
		"Wake is inside of a guard": func(w *world, cfg *river.Config) {
			guarded := rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{Terms: noWait})
			cfg.Middleware = []rivertype.Middleware{guarded, rivermw.Wake[pgx.Tx](cfg)}
		},
		"no River client with transactions of type *sql.Tx": func(w *world, cfg *river.Config) {
			w.guarded(cfg, noWait)
			cfg.Middleware[0] = rivermw.Wake[*sql.Tx](cfg)
		},
		`FetchPollInterval of queue "default" is 300ms`: func(w *world, cfg *river.Config) {
			cfg.FetchPollInterval = 300 * time.Millisecond
			w.guarded(cfg, noWait)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := config(3, charging(succeeds))
			build(w, cfg)
			w.serve(cfg)
			w.ends(w.insert(chargeArgs{Account: "42"}), rivertype.JobStateCompleted)
			release := locktest.Hold(t, w.locker(), "account:42")
			w.snoozed(w.insert(chargeArgs{Account: "42"}))
			release()
			w.ends(w.insert(chargeArgs{Account: "42"}), rivertype.JobStateCompleted)
			w.ends(w.insert(chargeArgs{Account: "42"}), rivertype.JobStateCompleted)
			if m := locktest.EventsOf[event.Misconfigured](w.heard); len(m) != 1 || !strings.Contains(m[0].Problem, want) {
				t.Errorf("%+v", m)
			}
		})
	}
}

// An operator cancels a parked job in a transaction, while the end of a hold wakes it. It stays canceled.
func TestCanceledIsNotWoken(t *testing.T) {
	w := newWorld(t)
	release := locktest.Hold(t, w.locker(), "account:42")
	w.serve(w.guarded(config(3, charging(func(context.Context, *river.Job[chargeArgs]) error {
		t.Error("a canceled job runs")
		return nil
	})), noWait))
	id := w.insert(chargeArgs{Account: "42"})
	w.parked(id)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.JobCancelTx(t.Context(), tx, id); err != nil {
		t.Fatal(err)
	}
	release()
	waits := w.eventually(func() (waits bool) {
		err := w.pool.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&waits)
		return err == nil && waits
	})
	if err := tx.Commit(t.Context()); err != nil || !waits {
		t.Fatal(err, waits)
	}
	ended := w.eventually(func() (none bool) {
		err := w.pool.QueryRow(t.Context(), `SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&none)
		return err == nil && none
	})
	if state := w.job(id).State; state != rivertype.JobStateCancelled || !ended {
		t.Errorf("the job is %s, and no wake waits: %v", state, ended)
	}
}
