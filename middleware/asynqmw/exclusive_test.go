package asynqmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// asynq retries a task whose handler is still running after the deadline. The retry has the same
// task ID, but does not enter that handler's hold. It waits, and then gets a separate hold. In
// sidekiq-unique-jobs the lock is reentrant by job ID.
func TestExclusiveSameTaskIDDoesNotReenter(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		var tokens []int64
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{})
		w.serve(asynqmw.Configure(quick()), alone(g.handler(func(ctx context.Context, run int, _ *asynq.Task) error {
			token, _ := guard.Token(ctx, "test:7")
			tokens = append(tokens, token) // without a mutex, so the race detector reports two runs at once
			if run == 1 {
				stubborn(3 * time.Second)
			}
			return nil
		})))
		info := w.ends(w.enqueue("charge", "7", asynq.MaxRetry(3), asynq.Timeout(time.Second)), asynq.TaskStateCompleted)
		if runs, most := g.counts(); runs != 2 || most != 1 {
			w.Errorf("%d runs, %d at once; want two, one after the other", runs, most)
		}
		if len(tokens) != 2 || tokens[0] == 0 || tokens[1] <= tokens[0] {
			w.Errorf("tokens %v, want two that grow", tokens)
		}
		if info.Retried != 1 {
			w.Errorf("retried %d, want 1: the deadline counts, the conflicts do not", info.Retried)
		}
	})
}

// Tasks of one key run one at a time. Tasks of two keys do not wait for each other.
func TestExclusiveTakesTurns(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var same gauge
		alone := asynqmw.Exclusive(w.locks, asynqmw.ByJSON("account", "/account"), asynqmw.ExclusiveOptions{})
		other := make(chan struct{}) // closed when account 43 runs
		work := same.handler(func(context.Context, int, *asynq.Task) error {
			select {
			case <-other:
			case <-time.After(20 * time.Second):
				w.Error("account 43 waits for account 42")
			}
			stubborn(20 * time.Millisecond)
			return nil
		})
		w.serve(asynqmw.Configure(quick()), alone(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			if strings.Contains(string(t.Payload()), "42") {
				return work.ProcessTask(ctx, t)
			}
			close(other)
			return nil
		})))
		var tasks []*asynq.TaskInfo
		for range 5 {
			tasks = append(tasks, w.enqueue("charge", `{"account":42}`))
		}
		tasks = append(tasks, w.enqueue("charge", `{"account":43}`))
		for _, task := range tasks {
			w.ends(task, asynq.TaskStateCompleted)
		}
		if runs, most := same.counts(); runs != 5 || most != 1 {
			w.Errorf("%d runs, %d at once; want 5, one at a time", runs, most)
		}
	})
}

// The handler panics. The panic passes through Exclusive, and the key is released.
func TestExclusivePanic(t *testing.T) {
	inBubble(t, func(w *world) {
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
		h := alone(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("boom") }))
		for range 2 {
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						w.Errorf("recovered %v", p)
					}
				}()
				_ = h.ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
			}()
		}
	})
}

// The lease is lost during a run that returns nil. asynq gets nil, because a retry cannot undo the
// run.
func TestLostLeaseIsNoError(t *testing.T) {
	inBubble(t, func(w *world) {
		revoke := func(kind event.Kind, key string) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				if err := w.locks.Revoke(context.WithoutCancel(ctx), kind, key); err != nil {
					return err
				}
				if !w.eventually(func() bool { return ctx.Err() != nil }) {
					w.Error("the handler's ctx did not end")
				}
				return nil
			})
		}
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{})(revoke(event.KindExclusive, "test:7"))
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})(revoke(event.KindOnce, "charge/test:7"))
		for _, h := range []asynq.Handler{alone, once} {
			if err := h.ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7"))); err != nil {
				w.Error(err)
			}
		}
		if n := len(locktest.EventsOf[event.Lost](w.heard)); n != 2 {
			w.Errorf("%d Lost events, want 2", n)
		}
	})
}

// A call with a closed Locker returns an error that satisfies ErrNotRun, and the handler does not
// run.
func TestNotRunIsAnError(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{})
		if err := w.locks.Close(w.Context()); err != nil {
			w.Fatal(err)
		}
		err := alone(g.handler(nothing)).ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
		if !errors.Is(err, lockcore.ErrClosed) || !errors.Is(err, lockcore.ErrNotRun) || errors.Is(err, asynq.SkipRetry) {
			w.Errorf("error %v, want ErrClosed", err)
		}
		if runs, _ := g.counts(); runs != 0 {
			w.Error("the handler ran")
		}
	})
}

// Invalid arguments of a constructor cause a panic that names each of them.
func TestConstructorsPanic(t *testing.T) {
	inBubble(t, func(w *world) {
		bad := lockcore.Terms{Lease: time.Millisecond}
		for name, c := range map[string]struct {
			make func()
			want []string
		}{
			"exclusive": {func() { asynqmw.Exclusive(nil, nil, asynqmw.ExclusiveOptions{Terms: bad, Busy: 9}) }, []string{"locks", "key", "Terms.Lease", "ExclusiveOptions.Busy"}},
			"all":       {func() { asynqmw.ExclusiveAll(nil, nil, asynqmw.ExclusiveOptions{Busy: 9}) }, []string{"ExclusiveAll", "locks", "keys", "ExclusiveOptions.Busy"}},
			"once": {
				func() {
					asynqmw.Once(nil, nil, asynqmw.OnceOptions{Terms: bad, Busy: -1, Keep: 1, Mode: 7, MaxResult: -1})
				},
				[]string{"locks", "key", "Terms.Lease", "OnceOptions.Busy", "Keep", "Mode", "MaxResult"},
			},
			"handler": {func() { asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{})(nil) }, []string{"handler"}},
			"class":   {func() { asynqmw.ByHeader("a:b", "h") }, []string{`"a:b"`}},
			"header":  {func() { asynqmw.ByHeader("a", "") }, []string{"name"}},
			"pointer": {func() { asynqmw.ByJSON("a", "account") }, []string{`"account"`}},
			"tilde":   {func() { asynqmw.ByJSON("a", "/a~2") }, []string{`"/a~2"`}},
			"none":    {func() { asynqmw.ByJSON("a") }, []string{"pointer"}},
			"join":    {func() { asynqmw.Join() }, []string{"KeyFunc"}},
		} {
			got := panicOf(c.make)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					w.Errorf("%s: panic %q does not name %s", name, got, want)
				}
			}
		}
	})
}

func panicOf(f func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	f()
	return ""
}
