package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// park parks entries on a key that is held.
func park(t *testing.T, l *lockcore.Locker, kind event.Kind, name string, entries ...string) {
	t.Helper()
	b := access.Of(l).Backend
	key := b.Key(backend.Kind(kind), name)
	for _, entry := range entries {
		r, err := b.Park(t.Context(), backend.ParkRequest{Key: &key, Entry: entry, Most: 10, Keep: time.Minute})
		if ok(t, err); r.Outcome != backend.Parked {
			t.Fatalf("%s: %+v", entry, r)
		}
	}
}

// worker returns a Locker that wakes tasks, and a channel with the free keys that it was asked to
// wake.
func worker(t *testing.T, rdb redis.UniversalClient) (*lockcore.Locker, <-chan backend.Key) {
	t.Helper()
	l, asked := locker(t, rdb, ""), make(chan backend.Key, 10)
	access.Of(l).HandleParked(func(key backend.Key, state access.Parked) {
		if state == access.ParkedFree {
			asked <- key
		}
	})
	access.Of(l).Subscribe(0)
	return l, asked
}

// wake sends its request to the process that parked a task most recently, once that process has
// subscribed. If no process receives the request, wake prints that and exits with exitProblem.
func TestWake(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	holder := locker(t, s.Client(t), "")
	lease, err := holder.Acquire(t.Context(), "account:42", lockcore.Terms{})
	ok(t, err)
	l, asked := worker(t, s.Client(t))
	park(t, l, event.KindExclusive, "account:42", "eu%2Fwest/low%20priority/7%2F1", "/default/8")

	wake := func(args ...string) (int, string, string) {
		t.Helper()
		return call{}.run(t, append([]string{"wake", "-redis", s.Addr()}, args...)...)
	}
	code, out, errs := wake("account:42")
	for end := time.Now().Add(20 * time.Second); code != exitOK && time.Now().Before(end); code, out, errs = wake("account:42") {
		if code != exitProblem || out != "sent to 0 process(es)\n" || !strings.HasPrefix(errs, "No process received it") || strings.Contains(errs, "Cluster") {
			t.Fatalf("before the subscription: %d %q %q", code, out, errs)
		}
	}
	if code != exitOK || out != "sent to 1 process(es)\n" || !strings.Contains(errs, "account:42 is held: the task waits for it") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if key := <-asked; key.Kind != backend.KindExclusive || key.Name != "account:42" {
		t.Errorf("asked to wake %+v", key)
	}
	var k keys
	code, out, _ = wake("-json", "account:42")
	ok(t, json.Unmarshal([]byte(out), &k))
	if code != exitOK || k.Action != "sent" || k.Received == nil || *k.Received != 1 || len(k.Keys) != 1 || k.Keys[0].Parked != 2 {
		t.Errorf("%d %s", code, out)
	}

	ok(t, lease.Release(t.Context()))
	if code, out, errs := wake("account:42"); code != exitOK || out != "sent to 1 process(es)\n" || errs != "" {
		t.Errorf("a free key: %d %q %q", code, out, errs)
	}
	if code, out, errs := (call{}).run(t, "show", "-redis", s.Addr(), "account:42"); code != exitProblem || !strings.Contains(out, "tasks parked") || !strings.Contains(errs, "holdfast wake") {
		t.Errorf("show a free key: %d %q %q", code, out, errs)
	}
	ok(t, l.Close(context.Background()))
	k = keys{}
	code, out, errs = wake("-json", "account:42")
	ok(t, json.Unmarshal([]byte(out), &k))
	if code != exitProblem || k.Action != "" || k.Received == nil || *k.Received != 0 || !strings.HasPrefix(errs, "No process received it") {
		t.Errorf("without the worker: %d %s %q", code, out, errs)
	}
}

// The holder of a key dies, so no release wakes the parked task. wake makes a worker run it at
// once.
func TestWakeRunsTheTask(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	_, err := locker(t, s.Client(t), "").AcquireFixed(t.Context(), "account:42", lockcore.Terms{Lease: time.Second})
	ok(t, err)
	l, rdb, ran := locker(t, s.Client(t), ""), s.Client(t), make(chan time.Time, 1)
	mux := asynq.NewServeMux()
	mux.Handle("transfer", asynqmw.Exclusive(l, asynqmw.ByJSON("account", "/id"), asynqmw.ExclusiveOptions{
		Terms: lockcore.Terms{Wait: lockcore.NoWait},
	})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran <- time.Now()
		return nil
	})))
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.ConfigureParking(asynq.Config{
		Concurrency: 1, TaskCheckInterval: 20 * time.Millisecond, LogLevel: asynq.FatalLevel,
	}, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(rdb)}))
	ok(t, srv.Start(mux))
	defer srv.Shutdown()
	_, err = asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("transfer", []byte(`{"id": 42}`)))
	ok(t, err)
	for { // until the task is parked and the key is free
		h, err := l.Inspect(t.Context(), event.KindExclusive, "account:42")
		if ok(t, err); h.Parked == 1 && h.State == lockcore.StateFree {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	began := time.Now()
	if code, out, errs := (call{}).run(t, "wake", "-redis", s.Addr(), "account:42"); code != exitOK || out != "sent to 1 process(es)\n" {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	if took := (<-ran).Sub(began); took > 20*time.Second { // without wake the task returns 30 s after it was parked
		t.Errorf("the task ran after %v", took)
	} else {
		t.Logf("the task ran after %v", took)
	}
}

// wake on a key without parked tasks exits with exitProblem. If the key of the other kind has some,
// wake says so.
func TestWakeNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	_, _, err := l.Claim(t.Context(), "payment:9", lockcore.Claim{})
	ok(t, err)
	gone := locker(t, s.Client(t), "") // is not subscribed, because it holds nothing and waits for nothing
	park(t, gone, event.KindOnce, "payment:9", "/default/7")
	_, err = l.Acquire(t.Context(), "account:42", lockcore.Terms{})
	ok(t, err)
	park(t, gone, event.KindExclusive, "account:42", "/default/7")
	for args, want := range map[string]string{
		"payment:9":        "the key of once with that name has 1: try -once",
		"-once account:42": "the key of exclusive with that name has 1: try without -once",
		"free":             "is that the right key",
	} {
		code, out, errs := call{}.run(t, append([]string{"wake", "-redis", s.Addr()}, strings.Fields(args)...)...)
		if code != exitProblem || out != "" || !strings.Contains(errs, "has no parked tasks") || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %q %q", args, code, out, errs)
		}
	}
	if code, out, errs := (call{}).run(t, "wake", "-redis", s.Addr(), "-once", "payment:9"); code != exitProblem || !strings.Contains(out, "sent to 0") {
		t.Errorf("-once: %d %q %q", code, out, errs)
	}
}

// In a Cluster the number of receivers may be too low, and wake says so.
func TestWakeInACluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := clusterNode(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	l := locker(t, c, "")
	_, err := l.Acquire(t.Context(), "account:42", lockcore.Terms{})
	ok(t, err)
	park(t, locker(t, c, ""), event.KindExclusive, "account:42", "/default/7")
	code, _, errs := call{}.run(t, "wake", "-redis", s.Addr(), "-cluster", "account:42")
	if code != exitProblem || !strings.Contains(errs, "In a Cluster Redis counts the subscribers of one node") {
		t.Errorf("%d %q", code, errs)
	}
}

// wake needs the rights of a Locker and no others.
func TestWakeRights(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	_, err := l.Acquire(t.Context(), "account:42", lockcore.Terms{})
	ok(t, err)
	park(t, l, event.KindExclusive, "account:42", "/default/7")
	env := map[string]string{"HOLDFAST_REDIS_USER": "op", "HOLDFAST_REDIS_PASSWORD": "pw"}
	for without, want := range map[string]string{"": "sent to ", "+publish": "the rights are listed"} {
		args := []any{"ACL", "SETUSER", "op", "reset", "on", ">pw", "~holdfast:2:*", "&holdfast:2:wake:*"}
		for right := range strings.FieldsSeq(redistest.Commands) {
			if right != without {
				args = append(args, right)
			}
		}
		ok(t, s.Client(t).Do(t.Context(), args...).Err())
		if _, out, errs := (call{env: env}).run(t, "wake", "-redis", s.Addr(), "account:42"); !strings.Contains(out+errs, want) {
			t.Errorf("without %q: %q %q, want %q", without, out, errs, want)
		}
	}
}

// show and ls print parked tasks, decoded, in text and in JSON.
func TestShowParked(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	furnish(t, l)
	park(t, l, event.KindExclusive, "account:42", "eu%2Fwest/low%20priority/7%2F1\x1b", "/default/8")
	time.Sleep(200 * time.Millisecond) // show rounds an age to tenths of a second
	code, out, errs := call{}.run(t, "show", "-redis", s.Addr(), "account:42")
	if code != exitOK || errs != "" {
		t.Errorf("%d %q", code, errs)
	}
	golden(t, "show_parked.txt", out, s.Addr())
	for _, command := range [][]string{{"show", "-json", "account:42"}, {"ls", "-json", "-match", "account:42"}} {
		_, out, _ = call{}.run(t, append([]string{command[0], "-redis", s.Addr()}, command[1:]...)...)
		var k keys
		ok(t, json.Unmarshal([]byte(out), &k))
		want := operator.ParkedTask{Deployment: "eu/west", Queue: "low priority", ID: "7/1\x1b"}
		if len(k.Keys) != 1 || k.Keys[0].Parked != 2 || k.Keys[0].ParkedForMS <= 0 || k.Keys[0].OldestParked == nil || *k.Keys[0].OldestParked != want {
			t.Errorf("%v: %s", command, out)
		}
	}
	_, out, _ = call{}.run(t, "ls", "-redis", s.Addr(), "-match", "account:42")
	if !strings.HasSuffix(strings.TrimSpace(out), " 2") || !strings.Contains(out, "PARKED") {
		t.Errorf("ls: %q", out)
	}
}

// show and why print the newest task of Latest, whether it is done, and a hold that is on its way with a
// ticket, in text and in JSON.
func TestShowLatestAndTicket(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	says := func(key string, code int, want ...string) {
		t.Helper()
		for command, parts := range map[string][]string{"show": {want[0]}, "why": want[:2], "show -json": {want[2]}} {
			args := append(strings.Fields(command), "-redis", s.Addr(), key)
			got, out, errs := call{}.run(t, args...)
			for _, part := range parts {
				if !strings.Contains(out, part) {
					t.Errorf("%s: no %q in %q %q", command, part, out, errs)
				}
			}
			if command != "why" && got != code {
				t.Errorf("%s: %d, want %d; %q", command, got, code, errs)
			}
		}
	}
	note, err := access.Of(l).NoteTrigger(t.Context(), "index:42", "eu/default/7%2F1", true)
	ok(t, err)
	time.Sleep(100 * time.Millisecond) // the command rounds an age to tenths of a second
	says("index:42", exitProblem, "latest   not done: task 7/1, queue default, deployment eu, came ", "Of the tasks of Latest, 7/1, queue default, deployment eu is the newest, and came ", `"latest_task": {`)
	ok(t, access.Of(l).RecordSuccess(t.Context(), "index:42", "eu/default/7%2F1", note.Number, true))
	says("index:42", exitProblem, "latest   done: a run has covered all that came until ", "index:42 is free.", `"latest_age_ms": `)

	le, err := l.Acquire(t.Context(), "export:1", lockcore.Terms{})
	ok(t, err)
	ticket, err := le.Ticket(t.Context(), time.Hour)
	ok(t, err)
	says("export:1", exitOK, "renewed     no: transferred with a ticket, and not adopted yet", "on its way to another process with a ticket: it is free when that one has adopted it", `"transferred": true`)
	adopted, err := l.Adopt(t.Context(), ticket, lockcore.Terms{})
	ok(t, err)
	says("export:1", exitOK, "export:1", "Its lease was renewed", `"transferred": false`)
	ok(t, adopted.Release(t.Context()))
}

// Any client with access to Redis can write any text as an entry.
func TestParkedTaskOf(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"/default/7":      "7, queue default",
		"eu/a%2Fb/7%20":   "7 , queue a/b, deployment eu",
		"eu/default":      "eu/default",
		"a/b/c/d":         "a/b/c/d",
		"/default/%zz":    "/default/%zz",
		"":                "",
		"e%1bu/d%1b/7%1b": `"7\x1b", queue "d\x1b", deployment "e\x1bu"`,
	} {
		if got := operator.ParkedTaskOf(entry).String(); got != want {
			t.Errorf("%q: %q, want %q", entry, got, want)
		}
	}
}
