package asynqmw_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

const oneDay = 24 * time.Hour

// chargeOnce returns a handler of Once with AtMostOnce that panics, and the number of its runs.
func chargeOnce(locks *lockcore.Locker) (asynq.Handler, *gauge) {
	g := new(gauge)
	once := asynqmw.Once(locks, byPayload, asynqmw.OnceOptions{Mode: guard.AtMostOnce})
	return once(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
		if run == 1 {
			panic("after the charge")
		}
		return nil
	})), g
}

// attempt calls h as asynq does.
func attempt(ctx context.Context, h asynq.Handler, t *asynq.Task) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("panic")
		}
	}()
	return h.ProcessTask(ctx, t)
}

// asynq's default 25 retries take three weeks. No retry charges again, and neither does an operator
// who runs the archived task on the last day of the archive without clearing the key.
// Shows: O5
func TestAtMostOnceOutlivesTheRetries(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (*lockcore.Locker, error){
		"memory": func(*testing.T) (*lockcore.Locker, error) { return lockcore.NewMemory(lockcore.MemoryOptions{}) },
		"redis": func(t *testing.T) (*lockcore.Locker, error) {
			return lockcore.New(redistest.Bubble(t).Client(t), lockcore.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locks.Close(context.Background()) }()
				h, g := chargeOnce(locks)
				task := asynq.NewTask("charge", []byte("7"))
				began := time.Now()
				for retry := range 26 {
					err := attempt(t.Context(), h, task)
					if runs, _ := g.counts(); runs != 1 {
						t.Fatalf("attempt %d, after %v: %d charges, want 1", retry+1, time.Since(began), runs)
					}
					if retry > 0 && (!errors.Is(err, lockcore.ErrAbandoned) || !errors.Is(err, asynq.SkipRetry)) {
						t.Fatalf("attempt %d: %v, want an AbandonedError that wraps SkipRetry", retry+1, err)
					}
					time.Sleep(asynq.DefaultRetryDelayFunc(retry, err, task))
				}
				if took := time.Since(began); took < 14*oneDay {
					t.Errorf("the retries took %v, want weeks", took)
				}
				time.Sleep(90 * oneDay)
				if err := attempt(t.Context(), h, task); !errors.Is(err, lockcore.ErrAbandoned) {
					t.Errorf("on the last day of the archive: %v, want an AbandonedError", err)
				}
			})
		})
	}
}

// asynq archives the task at its first refusal. On day 89 of the archive the key still refuses it,
// and that renews the mark for the next 89 days. When the key is cleared, the task runs again.
// Shows: O5
func TestAbandonedTaskInTheArchive(t *testing.T) {
	inBubble(t, func(w *world) {
		var handled complaints
		cfg := asynq.Config{Concurrency: 1, Logger: silent{}, ErrorHandler: &handled}
		h, g := chargeOnce(w.locks)
		task := w.enqueue("charge", "7") // with asynq's default retries
		serve := func() (stop func()) {
			srv := asynq.NewServerFromRedisClient(w.rdb, asynqmw.Configure(cfg))
			if err := srv.Start(h); err != nil {
				w.Fatal(err)
			}
			return srv.Shutdown
		}
		stop := serve()
		info := w.ends(task, asynq.TaskStateArchived)
		stop()
		if info.Retried != 1 || len(handled.all()) != 2 {
			w.Errorf("archived after %d retries, ErrorHandler got %v; want the first refusal", info.Retried, handled.all())
		}
		for range 2 {
			time.Sleep(89 * oneDay)
			stop = serve()
			if err := w.inspect.RunTask(info.Queue, info.ID); err != nil {
				w.Fatal(err)
			}
			w.ends(task, asynq.TaskStateArchived)
			stop()
			if runs, _ := g.counts(); runs != 1 {
				w.Fatalf("%d charges, want 1", runs)
			}
		}
		if err := w.locks.Clear(w.Context(), event.KindOnce, "charge/test:7"); err != nil {
			w.Fatal(err)
		}
		stop = serve()
		defer stop()
		if err := w.inspect.RunTask(info.Queue, info.ID); err != nil {
			w.Fatal(err)
		}
		w.ends(task, asynq.TaskStateCompleted)
	})
}

// asynq deletes an archived task after 90 days, when it archives another task of the queue. The mark
// of an abandoned key lasts longer. In a queue without other failures the task stays.
func TestAsynqFact_archivedTasksLast90Days(t *testing.T) {
	inBubble(t, func(w *world) {
		archive := func(payload string) *asynq.TaskInfo {
			info := w.enqueue("charge", payload, asynq.ProcessIn(time.Hour))
			if err := w.inspect.ArchiveTask(info.Queue, info.ID); err != nil {
				w.Fatal(err)
			}
			return info
		}
		first := archive("1")
		kept := func() bool {
			tasks, err := w.inspect.ListArchivedTasks(first.Queue)
			if err != nil {
				w.Fatal(err)
			}
			return slices.ContainsFunc(tasks, func(i *asynq.TaskInfo) bool { return i.ID == first.ID })
		}
		time.Sleep(90*oneDay - time.Minute)
		if archive("2"); !kept() {
			w.Error("the task is deleted before 90 days")
		}
		time.Sleep(2 * time.Minute)
		if !kept() {
			w.Error("the task is deleted although no other one is archived")
		}
		if archive("3"); kept() {
			w.Error("the task is kept for more than 90 days")
		}
	})
}

// The error names two commands. The first one clears the key when it is pasted into a shell,
// whatever characters the key has. The second one has the form of asynq's command, and its words
// name the archived task.
func TestAbandonedCommandsWorkWhenPasted(t *testing.T) {
	server := redistest.Real(t)
	w := newWorld(t, server.Client(t))
	all := redis.NewClient(&redis.Options{Addr: server.Addr()}) // without the Dialer that may take the rights of another prefix
	defer func() { _ = all.Close() }()
	prefixed, err := lockcore.New(all, lockcore.Options{Prefix: "it's"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = prefixed.Close(context.Background()) }()
	holdfast := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", holdfast, "github.com/holdfast-go/holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := regexp.MustCompile(`(?s)clear the key \(holdfast clear (.*)\) and run the task again \(asynq (.*)\)$`)
	words := func(command string) []string { // of the shell
		out, err := exec.CommandContext(t.Context(), "bash", "-c", `printf '%s\0' `+command).Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	for name, c := range map[string]struct {
		locks         *lockcore.Locker
		kind, payload string
	}{
		"plain":        {w.locks, "charge", "7"},
		"prefix":       {prefixed, "charge", "7"},
		"quotes":       {w.locks, "charge", `it's "7" $(id) \n`},
		"looks a flag": {w.locks, "-yes", "7"},
		"control":      {w.locks, "charge", "7\n\x1b[31mé'\\\x80a"},
	} {
		t.Run(name, func(t *testing.T) {
			h, g := chargeOnce(c.locks)
			srv := asynq.NewServerFromRedisClient(w.rdb, asynqmw.Configure(quick()))
			if err := srv.Start(h); err != nil {
				t.Fatal(err)
			}
			defer srv.Shutdown()
			info := w.ends(w.enqueue(c.kind, c.payload, asynq.TaskID("it's "+name)), asynq.TaskStateArchived)
			said := commands.FindStringSubmatch(info.LastErr)
			if said == nil {
				t.Fatalf("the error names no commands: %s", info.LastErr)
			}
			clear := exec.CommandContext(t.Context(), "bash", "-c", holdfast+" clear -yes "+said[1]) // without a terminal there is no question
			clear.Env = append(clear.Environ(), "HOLDFAST_REDIS="+server.Addr())
			if out, err := clear.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "cleared\n") {
				t.Fatalf("%s: %v\n%s", said[1], err, out)
			}
			run := words(said[2])
			if len(run) != 4 || run[0] != "task" || run[1] != "run" || run[2] != "--queue="+info.Queue || run[3] != "--id="+info.ID {
				t.Fatalf("the command of asynq has the words %q", run)
			}
			if err := w.inspect.RunTask(strings.TrimPrefix(run[2], "--queue="), strings.TrimPrefix(run[3], "--id=")); err != nil {
				t.Fatal(err)
			}
			w.ends(info, asynq.TaskStateCompleted)
			if runs, _ := g.counts(); runs != 2 {
				t.Errorf("%d runs, want 2", runs)
			}
		})
	}
}

// A recorded failure is final, also for asynq: the task is archived when the record is replayed.
// Otherwise the fifteenth attempt would come after the end of the record, and run the handler.
func TestRecordedFailureOutlivesTheRetries(t *testing.T) {
	for name, c := range map[string]struct {
		mode guard.Mode
		mark func(error) error
	}{
		"at most once": {guard.AtMostOnce, func(err error) error { return err }},
		"final":        {guard.AtLeastOnce, guard.Final},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var g gauge
				once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: c.mode})
				srv := asynq.NewServerFromRedisClient(w.rdb, asynqmw.Configure(asynq.Config{Concurrency: 1, Logger: silent{}}))
				if err := srv.Start(once(g.handler(func(context.Context, int, *asynq.Task) error { return c.mark(errBoom) }))); err != nil {
					t.Fatal(err)
				}
				defer srv.Shutdown()
				info := w.ends(w.enqueue("charge", "7"), asynq.TaskStateArchived)
				if runs, _ := g.counts(); runs != 1 || info.Retried != 1 || info.LastErr != errBoom.Error() {
					t.Errorf("%d runs, archived after %d retries with the error %q; want one run and one retry", runs, info.Retried, info.LastErr)
				}
			})
		})
	}
}

// Under guard.AtMostOnce a task with another payload than that of its abandoned key is archived at
// once, with no command. A retry would run the other payload after the operator has cleared the key.
func TestAnotherPayloadIsArchived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bubble(t).Client(t))
		w.virtual = true
		var g gauge
		once := asynqmw.Once(w.locks, asynqmw.ByJSON("payment", "/id"), asynqmw.OnceOptions{Mode: guard.AtMostOnce, Fingerprint: asynqmw.WholePayload})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run == 1 {
				return guard.Unknown(errBoom)
			}
			return nil
		})))
		w.ends(w.enqueue("charge", `{"id":7,"amount":1}`), asynq.TaskStateArchived)
		info := w.ends(w.enqueue("charge", `{"id":7,"amount":2}`), asynq.TaskStateArchived)
		if runs, _ := g.counts(); runs != 1 || strings.Contains(info.LastErr, "holdfast clear") || !strings.Contains(info.LastErr, "another") {
			t.Errorf("%d runs, the last error is %q", runs, info.LastErr)
		}
	})
}
