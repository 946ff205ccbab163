package asynqmw_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

func TestByJSON(t *testing.T) {
	const payload = `{"account_id": 42, "id": "a,b%", "big": 12345678901234567890, "f": 4.20, "yes": true, "no": false,
		"a/b": {"m~n": ["x", {"": "deep"}]}, "null": null, "empty": "", "o": {}, "l": [], "zero": 0}`
	for _, c := range []struct{ pointers, want string }{
		{"/account_id", "c:42"},
		{"/id", "c:a,b%"},
		{"/big", "c:12345678901234567890"},
		{"/f", "c:4.20"},
		{"/yes", "c:true"},
		{"/no", "c:false"},
		{"/zero", "c:0"},
		{"/a~1b/m~0n/0", "c:x"},
		{"/a~1b/m~0n/1/", "c:deep"},
		{"/id /account_id", "c:a%2Cb%25,42"},
		{"/missing", ""},
		{"/account_id /missing", ""},
		{"/null", ""},
		{"/empty", ""},
		{"/o", ""},
		{"/l", ""},
		{"", ""},
		{"/l/0", ""},
		{"/a~1b/m~0n/-", ""},
		{"/a~1b/m~0n/00", ""},
		{"/a~1b/m~0n/+0", ""},
		{"/a~1b/m~0n/2", ""},
		{"/id/x", ""},
	} {
		pointers := strings.Split(c.pointers, " ")
		key, err := asynqmw.ByJSON("c", pointers...)(t.Context(), asynq.NewTask("charge", []byte(payload)))
		switch {
		case c.want == "" && (err == nil || !strings.Contains(err.Error(), `"`+pointers[len(pointers)-1]+`"`)):
			t.Errorf("%q: error %v does not name the pointer", c.pointers, err)
		case c.want != "" && (err != nil || key.String() != c.want):
			t.Errorf("%q: %v, %v; want %s", c.pointers, key, err, c.want)
		}
	}
	for _, bad := range []string{"", "not json", `{"account_id":42} {}`, `{"account_id":42`} {
		_, err := asynqmw.ByJSON("c", "/account_id")(t.Context(), asynq.NewTask("charge", []byte(bad)))
		if err == nil || !strings.Contains(err.Error(), `"/account_id"`) {
			t.Errorf("payload %q: error %v", bad, err)
		}
	}
	if key, err := asynqmw.ByJSON("c", "")(t.Context(), asynq.NewTask("charge", []byte(`"x"`))); err != nil || key.String() != "c:x" {
		t.Errorf("whole document: %v, %v", key, err)
	}
}

// Different lists of parts make different keys.
func TestJoinIsInjective(t *testing.T) {
	part := rapid.StringMatching(`[a,%2C]{1,4}`)
	rapid.Check(t, func(t *rapid.T) {
		join := func(parts []string) string {
			var keys []asynqmw.KeyFunc
			for _, p := range parts {
				keys = append(keys, func(context.Context, *asynq.Task) (guard.Key, error) {
					return guard.Key{Class: "c", ID: p}, nil
				})
			}
			k, err := asynqmw.Join(keys...)(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return k.String()
		}
		n := rapid.IntRange(1, 3).Draw(t, "n")
		a := rapid.SliceOfN(part, n, n).Draw(t, "a")
		b := rapid.SliceOfN(part, n, n).Draw(t, "b")
		if slices.Equal(a, b) != (join(a) == join(b)) {
			t.Fatalf("%q and %q make %q and %q", a, b, join(a), join(b))
		}
	})
}

// Each key function returns the expected key for a task on a server.
func TestKeysOnServer(t *testing.T) {
	inBubble(t, func(w *world) {
		keys := map[string]asynqmw.KeyFunc{
			"task:high,id-1":      asynqmw.ByTaskID(),
			"type:email:send":     asynqmw.ByType(),
			"queue:high":          asynqmw.ByQueue(),
			"tenant:acme":         asynqmw.ByHeader("tenant", "x-tenant"),
			"queue+user:high,7":   asynqmw.Join(asynqmw.ByQueue(), asynqmw.ByJSON("user", "/user")),
			"payload:email:send,": asynqmw.ByPayload(),
		}
		w.serve(func() asynq.Config {
			cfg := quick()
			cfg.Queues = map[string]int{"high": 1}
			return cfg
		}(), asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			for want, key := range keys {
				if k, err := key(ctx, t); err != nil || !strings.HasPrefix(k.String(), want) || k.Class == "" {
					w.Errorf("%v, %v; want %s", k, err, want)
				}
			}
			_, err := asynqmw.ByHeader("tenant", "other")(ctx, t)
			if err == nil || !strings.Contains(err.Error(), `"other"`) {
				w.Errorf("missing header: %v", err)
			}
			return nil
		}))
		info, err := w.client.Enqueue(
			asynq.NewTaskWithHeaders("email:send", []byte(`{"user":7}`), map[string]string{"x-tenant": "acme"}),
			asynq.Queue("high"), asynq.TaskID("id-1"), asynq.Retention(1<<40))
		if err != nil {
			w.Fatal(err)
		}
		w.ends(info, asynq.TaskStateCompleted)
	})
	for _, key := range []asynqmw.KeyFunc{asynqmw.ByTaskID(), asynqmw.ByQueue()} {
		if k, err := key(t.Context(), asynq.NewTask("charge", nil)); err == nil {
			t.Errorf("outside of a server: %v", k)
		}
	}
}

// The default name is the class of the key, the holder has the task ID, and a once key begins with
// the task type.
func TestKeyReachesLockcore(t *testing.T) {
	inBubble(t, func(w *world) {
		seen := map[string]string{}
		look := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} {
				for _, key := range []string{"account:42", "email:send/account:42", "a%2Fb/account:42"} {
					if h, err := w.locks.Inspect(ctx, kind, key); err == nil && h.State == lockcore.StateHeld && h.Holder.Task == id {
						seen[kind.String()+" "+key] = t.Type()
					}
				}
			}
			return nil
		})
		key := asynqmw.ByJSON("account", "/account_id")
		once := asynqmw.Once(w.locks, key, asynqmw.OnceOptions{})(look)
		alone := asynqmw.Exclusive(w.locks, key, asynqmw.ExclusiveOptions{})(look)
		w.serve(asynqmw.Configure(quick()), asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			return errors.Join(once.ProcessTask(ctx, t), alone.ProcessTask(ctx, t))
		}))
		for _, kind := range []string{"email:send", "a/b"} {
			w.ends(w.enqueue(kind, `{"account_id":42}`), asynq.TaskStateCompleted)
		}
		want := []string{"exclusive account:42", "once a%2Fb/account:42", "once email:send/account:42"}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			w.Errorf("keys %q, want %q", got, want)
		}
		for _, a := range w.heard.Calls() {
			if a.Name != "account" {
				w.Errorf("name %q", a.Name)
			}
		}
	})
}

// A task without the value for its key does not run. asynq gets an error that it retries, and the
// Observer gets NoKey.
func TestNoKey(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		account := asynqmw.Exclusive(w.locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
		w.serve(asynqmw.Configure(quick()), account(g.handler(nothing)))
		info := w.ends(w.enqueue("charge", `{"account":42}`, asynq.MaxRetry(2)), asynq.TaskStateArchived)
		if info.Retried != 2 || !strings.Contains(info.LastErr, `"/account_id"`) {
			w.Errorf("retried %d, last error %q; want 2 and the pointer", info.Retried, info.LastErr)
		}
		if got := locktest.EventsOf[event.NoKey](w.heard); len(got) != 3 || got[0].Name != "account" {
			w.Errorf("events %+v, want 3 of account", got)
		}
		if runs, _ := g.counts(); runs != 0 {
			w.Errorf("%d runs, want 0", runs)
		}
	})
}

// A KeyFunc returns guard.Unguarded. The task runs without a guard, and SetResult works. An empty
// ID is an error.
func TestUnguarded(t *testing.T) {
	inBubble(t, func(w *world) {
		key := func(_ context.Context, t *asynq.Task) (guard.Key, error) {
			if string(t.Payload()) == "none" {
				return guard.Key{}, guard.Unguarded
			}
			return guard.Key{Class: "test"}, nil
		}
		var g gauge
		alone := asynqmw.Exclusive(w.locks, key, asynqmw.ExclusiveOptions{})
		once := asynqmw.Once(w.locks, key, asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(alone(g.handler(func(ctx context.Context, _ int, _ *asynq.Task) error {
			return asynqmw.SetResult(ctx, []byte("done"))
		}))))
		for range 2 {
			if info := w.ends(w.enqueue("charge", "none"), asynq.TaskStateCompleted); string(info.Result) != "done" {
				w.Errorf("result %q", info.Result)
			}
		}
		w.ends(w.enqueue("charge", "empty", asynq.MaxRetry(0)), asynq.TaskStateArchived)
		if runs, _ := g.counts(); runs != 2 {
			w.Errorf("%d runs, want 2", runs)
		}
		if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 1 {
			w.Errorf("%d NoKey events, want 1", n)
		}
	})
}
