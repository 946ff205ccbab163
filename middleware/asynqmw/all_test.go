package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// eachPart returns a key for each part of the payload: "a,b" has two.
func eachPart(_ context.Context, t *asynq.Task) (keys []guard.Key, err error) {
	for id := range strings.SplitSeq(string(t.Payload()), ",") {
		keys = append(keys, guard.Key{Class: "test", ID: id})
	}
	return keys, nil
}

// Tasks with random pairs of keys run beside tasks with one of these keys under Exclusive, with and
// without Parking. No two tasks of a key run at the same time, all tasks run, and no retry is used
// up.
func TestExclusiveAll(t *testing.T) {
	t.Parallel()
	for _, parking := range []bool{false, true} {
		t.Run(fmt.Sprint("parking ", parking), func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				var keys [4]gauge
				h := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
					for key := range strings.SplitSeq(string(t.Payload()), ",") {
						guard.MustHold(ctx, "test:"+key)
						g := &keys[key[0]-'0']
						g.enter()
						defer g.leave()
					}
					stubborn(5 * time.Millisecond)
					return nil
				})
				mux := asynq.NewServeMux()
				o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: 300 * time.Millisecond}}
				mux.Handle("transfer", asynqmw.ExclusiveAll(w.locks, eachPart, o)(h))
				mux.Handle("statement", asynqmw.Exclusive(w.locks, byPayload, o)(h))
				cfg := asynqmw.Configure(quick())
				if parking {
					cfg = w.parking(8)
				}
				w.serve(cfg, mux)
				var tasks []*asynq.TaskInfo
				rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
				for i := range 60 {
					a := rnd.IntN(len(keys))
					if i%3 == 0 {
						tasks = append(tasks, w.enqueue("statement", fmt.Sprint(a)))
					} else {
						tasks = append(tasks, w.enqueue("transfer", fmt.Sprintf("%d,%d", a, (a+1+rnd.IntN(len(keys)-1))%len(keys))))
					}
				}
				w.all(tasks)
				for i := range keys {
					if _, most := keys[i].counts(); most > 1 {
						w.Errorf("%d at once under key %d", most, i)
					}
				}
				for _, a := range w.heard.Calls() {
					if a.Name != "test" {
						w.Errorf("an acquisition has the name %q", a.Name)
					}
				}
			})
		})
	}
}

// A task is parked on the key that is busy, and holds none of its keys. The release of that key
// wakes the task.
// Shows: A9
func TestExclusiveAllParks(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		lease := w.hold("test:b")
		w.serve(w.parking(3), asynqmw.ExclusiveAll(w.locks, eachPart, parkAtOnce)(g.handler(nothing)))
		task := w.parked(w.enqueue("transfer", "c,b,a,b"))
		if want := `asynqmw: parked on key "test:b" with 0 before it; held for `; !strings.HasPrefix(task.LastErr, want) {
			w.Errorf("last error %q, want %q", task.LastErr, want)
		}
		for key, want := range map[string]int{"test:a": 0, "test:b": 1, "test:c": 0} {
			if n := w.entries(key); n != want {
				w.Errorf("%d entries on %s, want %d", n, key, want)
			}
		}
		for _, key := range []string{"test:a", "test:c"} {
			if err := guard.Exclusive(context.Background(), w.locker(), key, noWait, func(context.Context) error { return nil }); err != nil {
				w.Error(err)
			}
		}
		_ = lease.Release(context.Background())
		if took := w.all([]*asynq.TaskInfo{task}); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}
		if n := w.entries("test:b"); n != 0 {
			w.Errorf("%d entries are left", n)
		}
	})
}

// A task is woken for one key and finds another one busy, on the same server or on another one. It
// gives up its place on the first key at once, also if it then waits in its worker. The next task
// of the first key runs.
// Shows: A9
func TestExclusiveAllMoves(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"is parked": lockcore.NoWait, "waits": 20 * time.Second} {
		for server, other := range map[string]bool{"same server": false, "other server": true} {
			t.Run(name+", "+server, func(t *testing.T) {
				t.Parallel()
				both(t, func(w *world) {
					var g gauge
					o := parkAtOnce
					o.Terms.Wait = wait
					start := func(locks *lockcore.Locker, all asynqmw.ExclusiveOptions) *asynq.Server {
						mux := asynq.NewServeMux()
						mux.Handle("transfer", asynqmw.ExclusiveAll(locks, eachPart, all)(g.handler(nothing)))
						mux.Handle("statement", asynqmw.Exclusive(locks, byPayload, parkAtOnce)(g.handler(nothing)))
						return w.serve(w.parking(3), mux)
					}
					first := start(w.locks, parkAtOnce)
					b := w.hold("test:b")
					transfer := w.parked(w.enqueue("transfer", "a,b"))
					statement := w.parked(w.enqueue("statement", "b"))
					if other {
						first.Stop() // takes no more tasks, but still wakes parked tasks
						start(w.locker(), o)
					} else {
						first.Shutdown()
						start(w.locks, o)
					}
					a := w.hold("test:a")
					_ = b.Release(context.Background())
					if took := w.all([]*asynq.TaskInfo{statement}); w.late(took, 2*time.Second) {
						w.Errorf("the next task of the key is done after %v", took)
					}
					if wait == lockcore.NoWait {
						w.until(transfer, func(i *asynq.TaskInfo) bool { return strings.Contains(i.LastErr, `parked on key "test:a"`) })
						if n := w.entries("test:a"); n != 1 {
							w.Errorf("%d entries on the busy key, want 1", n)
						}
					} else {
						w.state(asynq.TaskStateActive, transfer)
					}
					if n := w.entries("test:b"); n != 0 {
						w.Errorf("%d entries are left on the other key", n)
					}
					_ = a.Release(context.Background())
					if took := w.all([]*asynq.TaskInfo{transfer}); w.late(took, soon) {
						w.Errorf("done after %v", took)
					}
					if n := w.entries("test:a") + w.entries("test:b"); n != 0 {
						w.Errorf("%d entries are left", n)
					}
				})
			})
		}
	}
}

// A woken task ends with an error that is no conflict, because the data of another one of its keys
// cannot be read. The next task of the key for which it was woken runs.
// Shows: A9
func TestExclusiveAllEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		mux := asynq.NewServeMux()
		mux.Handle("transfer", asynqmw.ExclusiveAll(w.locks, eachPart, parkAtOnce)(new(gauge).handler(nothing)))
		mux.Handle("statement", asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(new(gauge).handler(nothing)))
		b := w.hold("test:b")
		w.serve(w.parking(3), mux)
		transfer := w.parked(w.enqueue("transfer", "a,b", asynq.MaxRetry(1)))
		statement := w.parked(w.enqueue("statement", "b"))
		stored := w.exclusive("test:a").Stored[0]
		w.rdb.Del(context.Background(), stored)
		if err := w.rdb.LPush(context.Background(), stored, "foreign").Err(); err != nil {
			w.Fatal(err)
		}
		_ = b.Release(context.Background())
		if took := w.all([]*asynq.TaskInfo{statement}); took > 2*time.Second {
			w.Errorf("done after %v", took)
		}
		if info := w.ends(transfer, asynq.TaskStateArchived); !strings.Contains(info.LastErr, "another type") && !strings.Contains(info.LastErr, "WRONGTYPE") {
			w.Errorf("last error %q", info.LastErr)
		}
		if n := w.entries("test:b"); n != 0 {
			w.Errorf("%d entries are left", n)
		}
	})
}

// MinHold keeps all keys of a task that ran, and no key of a task that was parked.
func TestExclusiveAllMinHold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		const minHold = time.Second
		var g gauge
		o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait, MinHold: minHold}}
		mux := asynq.NewServeMux()
		mux.Handle("transfer", asynqmw.ExclusiveAll(w.locks, eachPart, o)(g.handler(nothing)))
		mux.Handle("statement", asynqmw.Exclusive(w.locks, byPayload, o)(g.handler(nothing)))
		b := w.hold("test:b")
		w.serve(w.parking(3), mux)
		transfer := w.parked(w.enqueue("transfer", "a,b"))
		if took := w.all([]*asynq.TaskInfo{w.enqueue("statement", "c"), w.enqueue("statement", "a")}); took > 500*time.Millisecond {
			w.Errorf("done after %v", took)
		}
		<-time.After(minHold)
		_ = b.Release(context.Background())
		w.all([]*asynq.TaskInfo{transfer})
		if took := w.all([]*asynq.TaskInfo{w.enqueue("statement", "a"), w.enqueue("statement", "b")}); took < minHold/2 || took > minHold+soon {
			w.Errorf("done after %v", took)
		}
	})
}

// A task without valid keys does not run. asynq gets an error with the reason, and the Observer
// gets NoKey. A task whose KeysFunc returns Unguarded runs.
func TestExclusiveAllKeys(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		many := make([]guard.Key, 17)
		for i := range many {
			many[i] = guard.Key{ID: fmt.Sprint(i)}
		}
		for name, tt := range map[string]struct {
			keys []guard.Key
			err  error
			want string // "": the task runs
		}{
			"none":          {want: "the task has 0 different keys, must have between 1 and 16"},
			"17":            {keys: many, want: "the task has 17 different keys"},
			"16, one twice": {keys: append(many[:16:16], many[3])},
			"empty":         {keys: []guard.Key{{ID: "a"}, {Class: "account"}}, want: "Key.ID is empty"},
			"error":         {err: errBoom, want: "boom"},
			"classes":       {keys: []guard.Key{{Class: strings.Repeat("x", 100), ID: "1"}, {Class: strings.Repeat("y", 100), ID: "1"}}, want: "Terms.Name is 201 bytes long"},
			"Unguarded":     {err: guard.Unguarded},
		} {
			var g gauge
			all := asynqmw.ExclusiveAll(w.locks, func(context.Context, *asynq.Task) ([]guard.Key, error) { return tt.keys, tt.err }, asynqmw.ExclusiveOptions{})
			err := all(g.handler(nothing)).ProcessTask(w.Context(), asynq.NewTask("transfer", nil))
			runs, _ := g.counts()
			if tt.want == "" && (err != nil || runs != 1) {
				w.Errorf("%s: %v, %d runs", name, err, runs)
			}
			if tt.want != "" && (!errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), tt.want) || runs != 0) {
				w.Errorf("%s: %v, %d runs; want %q", name, err, runs, tt.want)
			}
		}
		if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 5 {
			w.Errorf("NoKey %d times, want 5", n)
		}
	})
}
