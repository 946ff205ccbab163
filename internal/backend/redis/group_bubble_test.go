package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// groupWorld is a bubble with a Locker that sends groups. A round trip takes 20 ms. The first calls
// of inOrder are sent alone, and the others 1 ms later as a group.
type groupWorld struct {
	*world
	l      *lockcore.Locker
	faults *faulty.Network
	count  *redistest.Counter
	start  time.Time
}

func newGroupWorld(t *testing.T) *groupWorld {
	t.Helper()
	w := &groupWorld{world: newWorld(t), faults: faulty.New(t), count: new(redistest.Counter)}
	o := w.Options()
	o.Dialer = w.count.Dial(w.faults.Dial(o.Dialer))
	rdb := redis.NewClient(o)
	var err error
	if w.l, err = lockcore.New(rdb, lockcore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.faults.Heal()
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // Close must not wait for the leases that are still held
		_ = w.l.Close(ctx)
		_ = rdb.Close()
	})
	w.faults.Delay(10 * time.Millisecond)
	for range 2 { // afterwards the scripts are loaded and the connections are open
		ok(t, errors.Join(w.inOrder(lockAndUnlock(t.Context(), w.l, long))...))
		time.Sleep(10 * time.Millisecond) // longer than groupTime, so the first calls are sent alone again
	}
	w.count.Reset()
	w.start = time.Now()
	return w
}

// inOrder starts callers calls one after another without a pause, so that the last ones are in the
// group. It returns their errors.
func (w *groupWorld) inOrder(call func(i int) error) []error {
	errs := make([]error, callers)
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() { errs[i] = call(i) })
		synctest.Wait()
	}
	calls.Wait()
	return errs
}

func (w *groupWorld) acquire(ctx context.Context, i int) error {
	_, err := w.l.Acquire(ctx, fmt.Sprint("k", i), lockcore.Terms{Wait: lockcore.Forever})
	return err
}

// held returns how many keys are held after all withdrawals.
func (w *groupWorld) held() (n int) {
	time.Sleep(5 * time.Second) // withdrawals are confirmed
	for _, name := range w.Memory.Redis.Keys() {
		if w.Memory.Fields(name)["s"] == "h" {
			n++
		}
	}
	return n
}

// untimed is a ctx that has a deadline and is never done.
type untimed struct {
	context.Context //nolint:containedctx // untimed is a ctx itself
	end             time.Time
}

func (c untimed) Deadline() (time.Time, bool) { return c.end, true }

// A call ends at its own deadline, before or after its group is sent. The other calls get their
// replies. The key of the call that ended stays free.
// Shows: R4
func TestGroupShortCall(t *testing.T) {
	testlevel.InMemory(t)
	for bound, sent := range map[time.Duration]bool{500 * time.Microsecond: false, 5 * time.Millisecond: true} {
		for name, shorten := range map[string]func(context.Context, time.Duration) (context.Context, context.CancelFunc){
			"deadline": context.WithTimeout,
			"cancel": func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(d, cancel)
				return ctx, cancel
			},
			"deadline without a timer": func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
				return untimed{ctx, time.Now().Add(d)}, func() {}
			},
		} {
			t.Run(fmt.Sprint(bound, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newGroupWorld(t)
					errs := w.inOrder(func(i int) error {
						if i < callers-1 {
							return w.acquire(t.Context(), i)
						}
						ctx, cancel := shorten(t.Context(), bound)
						defer cancel()
						err := w.acquire(ctx, i)
						want := bound
						if ctx.Err() == nil {
							want += 10 * time.Millisecond // Acquire waits for the cause of ctx
						}
						if took := time.Since(w.start); took != want {
							t.Errorf("the short call ended after %v, want %v", took, want)
						}
						return err
					})
					if err := errs[callers-1]; !errors.Is(err, lockcore.ErrNotRun) {
						t.Errorf("the short call got %v", err)
					}
					ok(t, errors.Join(errs[:callers-1]...))
					if took := time.Since(w.start); took != 21*time.Millisecond {
						t.Errorf("the others took %v", took)
					}
					if n := w.held(); n != callers-1 {
						t.Errorf("%d keys are held", n)
					}
					if n := w.count.Count("grant_many"); n != 1 {
						t.Errorf("%d scripts for the group", n)
					}
					if n := w.count.Count("leave"); (n > 0) != sent {
						t.Errorf("%d withdrawals", n)
					}
				})
			})
		}
	}
}

// On a slow network eight concurrent calls are sent alone, because a call that waits for a group
// would take twice as long.
func TestGroupSlowNetwork(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := newGroupWorld(t)
		for round := range 10 {
			start := time.Now()
			var calls sync.WaitGroup
			for i := range 8 {
				calls.Go(func() {
					if err := lockAndUnlock(t.Context(), w.l, long)(i); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			if took := time.Since(start); took != 40*time.Millisecond && round > 4 { // in the first rounds connections are opened
				t.Errorf("a pair took %v, want 2 round trips", took)
			}
		}
	})
}

// The cause of a canceled ctx may be an error of another command of the user. It does not count as
// the reply to the call: the call may have taken effect, so it is withdrawn.
func TestGroupCancelCause(t *testing.T) {
	testlevel.InMemory(t)
	for name, cause := range map[string]error{
		"nil reply":      fmt.Errorf("load: %w", redis.Nil),
		"failed dial":    fmt.Errorf("load: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}),
		"no connection":  redis.ErrPoolTimeout,
		"an error reply": fmt.Errorf("load: %w", wrongType{}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newGroupWorld(t)
				errs := w.inOrder(func(i int) error {
					if i < callers-1 {
						return w.acquire(t.Context(), i)
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(5*time.Millisecond, func() { cancel(cause) }) // the group is sent after 1 ms
					return w.acquire(ctx, i)
				})
				ok(t, errors.Join(errs[:callers-1]...))
				if err := errs[callers-1]; !errors.Is(err, lockcore.ErrNotRun) || errors.Is(err, lockcore.ErrRecord) {
					t.Errorf("the canceled call got %v", err)
				}
				if n := w.held(); n != callers-1 {
					t.Errorf("%d keys are held, want %d", n, callers-1)
				}
			})
		})
	}
}

// wrongType is an error reply.
type wrongType struct{}

func (wrongType) Error() string {
	return "WRONGTYPE Operation against a key holding the wrong kind of value"
}
func (wrongType) RedisError() {}

// If the server has forgotten grant_many.lua, the calls of the group are sent again, once with the
// script in full.
func TestGroupScriptForgotten(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := newGroupWorld(t)
		ok(t, w.Redis.ScriptFlush(t.Context()).Err())
		ok(t, errors.Join(w.inOrder(func(i int) error { return w.acquire(t.Context(), i) })...))
		if n := w.held(); n != callers {
			t.Errorf("%d keys are held, want %d", n, callers)
		}
		if n := w.count.Count("grant_many"); n < 2 {
			t.Errorf("grant_many.lua was sent %d times, want 2", n)
		}
	})
}

// A reply to a group is missing. Only the calls of that group are delayed, by a second. Each is
// then sent again, and each key is granted.
// Shows: R4
func TestGroupLostReply(t *testing.T) {
	testlevel.InMemory(t)
	for name, plant := range faultKinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newGroupWorld(t)
				f := plant(w.faults, faulty.Script("grant_many"))
				var later sync.WaitGroup
				later.Go(func() {
					time.Sleep(100 * time.Millisecond)
					f.Remove()
					start := time.Now()
					for i := range callers {
						later.Go(func() {
							if err := w.acquire(t.Context(), callers+i); err != nil {
								t.Error(err)
							}
						})
					}
					time.Sleep(30 * time.Millisecond)
					if took := time.Since(start); took > 50*time.Millisecond {
						t.Errorf("the calls outside of the group took %v", took)
					}
				})
				errs := w.inOrder(func(i int) error { return w.acquire(t.Context(), i) })
				ok(t, errors.Join(errs...))
				if took := time.Since(w.start); took > 1200*time.Millisecond {
					t.Errorf("the calls took %v", took)
				}
				later.Wait()
				if n := w.held(); n != 2*callers {
					t.Errorf("%d keys are held, want %d", n, 2*callers)
				}
			})
		})
	}
}

// A call for which grant_many.lua does nothing gets the reply of its own script: the key has another
// holder, has a value of another type, or is released and no longer a plain hold. The group also
// contains calls that grant_many.lua does not do. Each acquire has its own lease.
// Shows: R4
func TestGroupMixed(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := newGroupWorld(t)
		other, _, _ := w.Locker(lockcore.Options{})
		otherLease := w.Must(other.Acquire(t.Context(), "held", long))
		foreign := storedNames(event.KindExclusive, "foreign")[0]
		ok(t, w.Redis.LPush(t.Context(), foreign, "x").Err())
		met := w.Must(w.l.Acquire(t.Context(), "mine", long))
		plain := w.Must(w.l.Acquire(t.Context(), "plain", long))
		if _, err := other.Acquire(t.Context(), "mine", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Fatal(err)
		}
		w.count.Reset()
		errs := w.inOrder(func(i int) (err error) {
			switch i {
			case callers - 1:
				_, err = w.l.Acquire(t.Context(), "held", noWait)
			case callers - 2:
				_, err = w.l.Acquire(t.Context(), "foreign", noWait)
			case callers - 3:
				err = met.Release(t.Context())
			case callers - 4:
				err = plain.Release(t.Context())
			case callers - 5:
				_, err = w.l.Inspect(t.Context(), event.KindExclusive, "mine")
			case callers - 6:
				_, _, err = w.l.Claim(t.Context(), "once", lockcore.Claim{Keep: time.Hour})
			default:
				_, err = w.l.Acquire(t.Context(), fmt.Sprint("k", i), lockcore.Terms{Lease: time.Duration(10+i) * time.Second, Wait: lockcore.NoWait})
			}
			return err
		})
		if err := errs[callers-1]; !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("held: %v", err)
		}
		if err := errs[callers-2]; err == nil || !strings.Contains(err.Error(), "foreign") {
			t.Errorf("foreign: %v", err)
		}
		ok(t, errors.Join(errs[:callers-2]...))
		ok(t, otherLease.Release(t.Context()))
		if n := w.count.Count("grant_many"); n != 1 {
			t.Errorf("%d scripts for the group", n)
		}
		for i := range callers - 6 {
			if left := w.world.Left(w.l, fmt.Sprint("k", i)); left < time.Duration(8+i)*time.Second || left > time.Duration(10+i)*time.Second {
				t.Errorf("k%d: %v are left", i, left)
			}
		}
		for _, name := range storedNames(event.KindExclusive, "plain") {
			if w.Memory.Redis.Exists(name) {
				t.Errorf("%s is left", name)
			}
		}
	})
}

// Close ends while calls wait for a group. They return at once, and no goroutine is left.
func TestGroupCloseWaiting(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := newGroupWorld(t)
		w.faults.Silence()
		time.AfterFunc(20500*time.Microsecond, func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = w.l.Close(ctx)
		})
		errs := w.inOrder(func(i int) error {
			if i == callers-1 {
				time.Sleep(20 * time.Millisecond)
			}
			return w.acquire(t.Context(), i)
		})
		for _, err := range errs {
			if !errors.Is(err, lockcore.ErrNotRun) {
				t.Errorf("a call got %v", err)
			}
		}
		if took := time.Since(w.start); took > 25*time.Millisecond {
			t.Errorf("they returned after %v", took)
		}
		w.faults.Heal()
	})
}
