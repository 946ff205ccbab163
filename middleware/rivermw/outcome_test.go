//go:build unix

package rivermw_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
	"github.com/holdfast-go/holdfast/postgres"
)

var (
	byAccount = rivermw.ByJSON("account", "/account_id")
	byPayment = rivermw.ByJSON("payment", "/payment_id")
	noWait    = lockcore.Terms{Wait: lockcore.NoWait}
)

type handler = func(context.Context, *river.Job[chargeArgs]) error

// story is a job of an outcome: its account is its name.
type story struct {
	guards func(*world) []rivertype.WorkerMiddleware
	before func(w *world, key string)
	work   handler
	twice  bool // another job of the account is worked afterwards, whose outcome counts

	state    rivertype.JobState
	attempts int // that were used up
	runs     int
	error    string // a part of the last error
	errors   int    // calls of the ErrorHandler
	panics   int
}

func one(make func(*world) rivertype.WorkerMiddleware) func(*world) []rivertype.WorkerMiddleware {
	return func(w *world) []rivertype.WorkerMiddleware { return []rivertype.WorkerMiddleware{make(w)} }
}

func alone(o rivermw.ExclusiveOptions) func(*world) []rivertype.WorkerMiddleware {
	o.Terms = noWait
	return one(func(w *world) rivertype.WorkerMiddleware { return rivermw.Exclusive(w.locks, byAccount, o) })
}

func once(o rivermw.OnceOptions) func(*world) []rivertype.WorkerMiddleware {
	return one(func(w *world) rivertype.WorkerMiddleware { return rivermw.Once(w.locks, byAccount, o) })
}

func held(w *world, key string) { locktest.Hold(w, w.locker(), "account:"+key) }

var (
	errPrinter = errors.New("the printer is out of paper")
	fails      = func(context.Context, *river.Job[chargeArgs]) error { return errPrinter }
	succeeds   = func(context.Context, *river.Job[chargeArgs]) error { return nil }
	snoozedNow = rivertype.JobStateScheduled // or available
)

// stories are the outcomes of a guard: the table of docs/river.md.
func stories() map[string]story {
	return map[string]story{
		"success": {guards: alone(rivermw.ExclusiveOptions{}), work: succeeds, runs: 1, attempts: 1, state: rivertype.JobStateCompleted},
		"replay":  {guards: once(rivermw.OnceOptions{}), work: succeeds, twice: true, runs: 1, attempts: 1, state: rivertype.JobStateCompleted},
		"busy":    {guards: alone(rivermw.ExclusiveOptions{}), before: held, state: snoozedNow},
		"skip":    {guards: alone(rivermw.ExclusiveOptions{Busy: rivermw.Skip}), before: held, attempts: 1, state: rivertype.JobStateCompleted},
		"cancel":  {guards: alone(rivermw.ExclusiveOptions{Busy: rivermw.Cancel}), before: held, attempts: 1, error: "is busy", state: rivertype.JobStateCancelled},
		"fail":    {guards: alone(rivermw.ExclusiveOptions{Busy: rivermw.Fail}), before: held, attempts: 1, error: "is busy", errors: 1, state: rivertype.JobStateDiscarded},
		"fail inside": {
			guards: func(w *world) []rivertype.WorkerMiddleware {
				return []rivertype.WorkerMiddleware{
					rivermw.Exclusive(w.locks, func(context.Context, *rivertype.JobRow) (guard.Key, error) { return guard.Key{ID: "outer"}, nil }, rivermw.ExclusiveOptions{}),
					rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{Terms: noWait, Busy: rivermw.Fail}),
				}
			},
			before: held, attempts: 1, error: "is busy", errors: 1, state: rivertype.JobStateDiscarded,
		},
		"no room": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				return rivermw.Limited(w.locks, byAccount, 2, rivermw.LimitedOptions{Terms: noWait})
			}),
			before: held, state: snoozedNow,
		},
		"not its turn": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				return rivermw.Throttled(w.locks, byAccount, lockcore.Rate{N: 1, Per: time.Hour}, rivermw.ThrottleOptions{})
			}),
			work: succeeds, twice: true, runs: 1, state: snoozedNow,
		},
		"handler found a key busy": {
			guards: alone(rivermw.ExclusiveOptions{}),
			work: func(context.Context, *river.Job[chargeArgs]) error {
				return &lockcore.BusyError{Key: "other", HeldFor: time.Minute, Remaining: time.Minute}
			},
			runs: 1, state: snoozedNow,
		},
		"handler was refused for a time": {
			guards: alone(rivermw.ExclusiveOptions{}),
			work:   func(context.Context, *river.Job[chargeArgs]) error { return guard.Paused(errPrinter, time.Hour) },
			runs:   1, state: snoozedNow,
		},
		"handler snoozes": {
			guards: once(rivermw.OnceOptions{Mode: guard.AtMostOnce}),
			work:   func(context.Context, *river.Job[chargeArgs]) error { return river.JobSnooze(time.Hour) },
			twice:  true, runs: 2, state: snoozedNow,
		},
		"no server": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				pool, err := pgxpool.New(context.Background(), "host="+w.TempDir()+" user=postgres")
				if err != nil {
					w.Fatal(err)
				}
				w.Cleanup(pool.Close)
				nowhere, err := postgres.New(pool, postgres.Options{Options: lockcore.Options{Observer: event.Discard}})
				if err != nil {
					w.Fatal(err)
				}
				w.Cleanup(func() { _ = nowhere.Close(context.Background()) })
				return rivermw.Exclusive(nowhere, byAccount, rivermw.ExclusiveOptions{Terms: noWait})
			}),
			state: snoozedNow,
		},
		"closed Locker": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				closed := w.locker()
				_ = closed.Close(context.Background())
				return rivermw.Exclusive(closed, byAccount, rivermw.ExclusiveOptions{})
			}),
			state: snoozedNow,
		},
		"error": {guards: alone(rivermw.ExclusiveOptions{}), work: fails, runs: 1, attempts: 1, error: errPrinter.Error(), errors: 1, state: rivertype.JobStateDiscarded},
		"lost lease": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				inner := rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{})
				return middlewareFunc(func(ctx context.Context, job *rivertype.JobRow, doInner doInner) error {
					return inner.Work(ctx, job, func(ctx context.Context) error {
						h, _ := guard.Current(ctx)
						if err := w.locks.Revoke(context.WithoutCancel(ctx), event.KindExclusive, h.Key); err != nil {
							w.Error(err)
						}
						<-ctx.Done()
						return doInner(ctx)
					})
				})
			}),
			work: succeeds, runs: 1, attempts: 1, error: "revoked", errors: 1, state: rivertype.JobStateDiscarded,
		},
		"abandoned": {
			guards: once(rivermw.OnceOptions{Mode: guard.AtMostOnce}),
			work:   func(context.Context, *river.Job[chargeArgs]) error { return guard.Unknown(errPrinter) },
			twice:  true, runs: 1, attempts: 1, error: "was abandoned", errors: 2, state: rivertype.JobStateDiscarded,
		},
		"recorded failure": {
			guards: once(rivermw.OnceOptions{}),
			work:   func(context.Context, *river.Job[chargeArgs]) error { return guard.Final(errPrinter) },
			twice:  true, runs: 1, attempts: 1, error: errPrinter.Error(), errors: 1, state: rivertype.JobStateCancelled,
		},
		"other args": {
			guards: once(rivermw.OnceOptions{Fingerprint: func(job *rivertype.JobRow) ([]byte, error) { return []byte{byte(job.ID)}, nil }}),
			work:   succeeds, twice: true, runs: 1, attempts: 1, error: "fingerprint", state: rivertype.JobStateCancelled,
		},
		"no fingerprint": {
			guards:   once(rivermw.OnceOptions{Fingerprint: func(*rivertype.JobRow) ([]byte, error) { return nil, errPrinter }}),
			attempts: 1, error: "no fingerprint for a job of kind", state: rivertype.JobStateCancelled,
		},
		"no key": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				return rivermw.Exclusive(w.locks, rivermw.ByJSON("user", "/user"), rivermw.ExclusiveOptions{})
			}),
			attempts: 1, error: `no key for a job of kind "charge": no value at "/user"`, state: rivertype.JobStateCancelled,
		},
		"key too long": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				return rivermw.Exclusive(w.locks, func(context.Context, *rivertype.JobRow) (guard.Key, error) {
					return guard.Key{ID: strings.Repeat("x", 600)}, nil
				}, rivermw.ExclusiveOptions{})
			}),
			attempts: 1, error: "bytes long", state: rivertype.JobStateCancelled,
		},
		"unguarded": {
			guards: one(func(w *world) rivertype.WorkerMiddleware {
				return rivermw.Exclusive(w.locks, func(context.Context, *rivertype.JobRow) (guard.Key, error) { return guard.Key{}, guard.Unguarded }, rivermw.ExclusiveOptions{})
			}),
			before: held, work: succeeds, runs: 1, attempts: 1, state: rivertype.JobStateCompleted,
		},
		"panic": {
			guards: alone(rivermw.ExclusiveOptions{}), work: func(context.Context, *river.Job[chargeArgs]) error { panic("no paper") },
			runs: 1, attempts: 1, error: "no paper", panics: 1, state: rivertype.JobStateDiscarded,
		},
	}
}

// Each outcome of a guard has this effect in River. Each job has one attempt, so a conflict that
// used it up would end the job.
// Shows: J1
func TestOutcomes(t *testing.T) {
	t.Parallel()
	w, all := newWorld(t), stories()
	work := &outcomes{all: all, guards: map[string][]rivertype.WorkerMiddleware{}, runs: map[string]int{}, failures: map[string][2]int{}}
	for name, s := range all {
		work.guards[name] = s.guards(w)
	}
	cfg := config(8, charging(nil))
	cfg.Workers = river.NewWorkers()
	river.AddWorker(cfg.Workers, work)
	cfg.MaxAttempts, cfg.ErrorHandler = 1, work
	w.serve(cfg)
	ids := map[string]int64{}
	for name, s := range all {
		if s.before != nil {
			s.before(w, name)
		}
		ids[name] = w.insert(chargeArgs{Account: name})
	}
	over := func(s story, j *rivertype.JobRow) bool {
		return j.State == s.state || s.state == snoozedNow && j.State == rivertype.JobStateAvailable && snoozes(t, j) > 0 || j.FinalizedAt != nil
	}
	for name, s := range all {
		job := w.until(ids[name], func(j *rivertype.JobRow) bool { return over(s, j) || s.twice && j.FinalizedAt != nil })
		if s.twice {
			ids[name] = w.insert(chargeArgs{Account: name})
			job = w.until(ids[name], func(j *rivertype.JobRow) bool { return over(s, j) })
		}
		last := ""
		if n := len(job.Errors); n > 0 {
			last = job.Errors[n-1].Error
		}
		if job.State != s.state && (s.state != snoozedNow || job.State != rivertype.JobStateAvailable) || job.Attempt != s.attempts || (s.error == "") != (last == "") || !strings.Contains(last, s.error) {
			t.Errorf("%s: job is %s, attempt %d, errors %v; want %s, %d, %q", name, job.State, job.Attempt, job.Errors, s.state, s.attempts, s.error)
		}
		if s.state == snoozedNow && snoozes(t, job) == 0 {
			t.Errorf("%s: metadata %s", name, job.Metadata)
		}
		work.mu.Lock()
		if runs, failed := work.runs[name], work.failures[name]; runs != s.runs || failed != [2]int{s.errors, s.panics} {
			t.Errorf("%s: %d runs, %v errors and panics; want %d, %d, %d", name, runs, failed, s.runs, s.errors, s.panics)
		}
		work.mu.Unlock()
	}
	if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 2 {
		t.Errorf("%d NoKey events, want 2", n)
	}
	for _, name := range []string{"panic", "error", "lost lease"} { // their keys are free
		locktest.Hold(t, w.locks, "account:"+name)
	}
}

// outcomes works the jobs of the stories.
type outcomes struct {
	river.WorkerDefaults[chargeArgs]

	all    map[string]story
	guards map[string][]rivertype.WorkerMiddleware

	mu       sync.Mutex
	runs     map[string]int
	failures map[string][2]int // calls of HandleError and HandlePanic
}

func nameOf(job *rivertype.JobRow) string {
	var a chargeArgs
	_ = json.Unmarshal(job.EncodedArgs, &a)
	return a.Account
}

func (o *outcomes) Middleware(job *rivertype.JobRow) []rivertype.WorkerMiddleware {
	return o.guards[nameOf(job)]
}

func (o *outcomes) Work(ctx context.Context, job *river.Job[chargeArgs]) error {
	o.mu.Lock()
	o.runs[job.Args.Account]++
	o.mu.Unlock()
	return o.all[job.Args.Account].work(ctx, job)
}

func (o *outcomes) HandleError(_ context.Context, job *rivertype.JobRow, _ error) *river.ErrorHandlerResult {
	return o.failed(job, 0)
}

func (o *outcomes) HandlePanic(_ context.Context, job *rivertype.JobRow, _ any, _ string) *river.ErrorHandlerResult {
	return o.failed(job, 1)
}

func (o *outcomes) failed(job *rivertype.JobRow, i int) *river.ErrorHandlerResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.failures[nameOf(job)]
	n[i]++
	o.failures[nameOf(job)] = n
	return nil
}
