package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func TestMain(m *testing.M) {
	process.Work(child)
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	addr = server.Addr()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) { server.Close(); os.Exit(code) }),
		goleak.IgnoreAnyFunction("github.com/alicebob/miniredis/v2/server.(*Server).ServeConn")) // serves the examples
}

// holds makes holds whose tokens are relative to the time of its creation.
type holds int64

func tokens() holds { return holds(time.Now().UnixMicro()) }

func (f holds) at(n int64, id string) fence.Hold {
	return fence.Hold{Key: "account:42", Token: int64(f) + n, ID: id}
}

// newest is the fence under test. It accepts h, or refuses it and writes nothing.
type newest func(h fence.Hold) (wrote bool, err error)

// onEach runs a test on each fence that needs no database.
func onEach(t *testing.T, test func(t *testing.T, accept newest)) {
	t.Run("guard", func(t *testing.T) {
		var m fence.Memory
		test(t, func(h fence.Hold) (wrote bool, err error) {
			err = m.Do(h, func() error { wrote = true; return nil })
			return wrote, err
		})
	})
	onRedis(t, func(t *testing.T, rdb *redis.Client) {
		f := fence.Redis{Client: rdb}
		test(t, func(h fence.Hold) (bool, error) {
			before, _ := rdb.LLen(t.Context(), "writes").Result()
			_, err := f.Do(t.Context(), h, "writes", "RPUSH", h.Token)
			after, _ := rdb.LLen(t.Context(), "writes").Result()
			return after > before, err
		})
	})
}

func onRedis(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("memory", func(t *testing.T) { test(t, redistest.Bubble(t).Client(t)) })
	t.Run("real", func(t *testing.T) { test(t, redistest.Real(t).Client(t)) })
}

// A fence accepts a newer hold, and accepts the newest one repeatedly. It refuses an older hold,
// and another hold with an equal token. A refusal writes nothing and names the token that was seen.
// Shows: F1
func TestNewest(t *testing.T) {
	onEach(t, func(t *testing.T, accept newest) {
		now := tokens()
		for i, step := range []struct {
			n    int64
			id   string
			seen int64 // 0: accepted
		}{
			{5, "a", 0},
			{5, "a", 0},
			{5, "b", 5},
			{4, "a", 5},
			{5, "a b", 5},
			{9, "a b", 0},
			{5, "a", 9},
			{9, "a b", 0},
			{9, "a", 9},
			{10, "c", 0},
		} {
			h := now.at(step.n, step.id)
			wrote, err := accept(h)
			if step.seen == 0 {
				if err != nil || !wrote {
					t.Errorf("step %d: wrote %v, %v", i, wrote, err)
				}
				continue
			}
			var stale *fence.StaleError
			want := fence.StaleError{Key: h.Key, Token: h.Token, Seen: int64(now) + step.seen}
			if wrote || !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) || *stale != want {
				t.Errorf("step %d: wrote %v, %v", i, wrote, err)
			}
		}
	})
}

// An invalid hold is refused with an error other than ErrStale, and nothing is written.
func TestBadHold(t *testing.T) {
	onEach(t, func(t *testing.T, accept newest) {
		for name, h := range map[string]fence.Hold{
			"zero":          {},
			"no key":        {Token: 1, ID: "a"},
			"long key":      {Key: strings.Repeat("k", 513), Token: 1, ID: "a"},
			"no token":      {Key: "k", ID: "a"},
			"token below 0": {Key: "k", Token: -1, ID: "a"},
			"token too big": {Key: "k", Token: 1 << 53, ID: "a"},
			"no id":         {Key: "k", Token: 1},
			"long id":       {Key: "k", Token: 1, ID: strings.Repeat("a", 65)},
		} {
			if wrote, err := accept(h); wrote || err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("%s: wrote %v, %v", name, wrote, err)
			}
		}
	})
}

// Eight writers write at the same time with tokens out of order, and some tokens belong to two
// holds. The tokens of accepted writes never decrease, and each token is accepted for one hold
// only.
// Shows: F1
func TestWriters(t *testing.T) {
	const writers, each = 8, 200
	check := func(t *testing.T, order []string, refused int64) {
		t.Helper()
		last, by := int64(0), ""
		for _, write := range order {
			var token int64
			var id string
			if _, err := fmt.Sscanf(write, "%d/%s", &token, &id); err != nil {
				t.Fatal(err)
			}
			if token < last || token == last && id != by {
				t.Errorf("%s after %d/%s", write, last, by)
			}
			last, by = token, id
		}
		if len(order) < 100 || refused < 100 || int64(len(order))+refused != writers*each {
			t.Errorf("inconclusive: %d accepted, %d refused", len(order), refused)
		}
	}
	run := func(t *testing.T, write func(h fence.Hold, what string) error) (refused int64) {
		t.Helper()
		now := tokens()
		var drawn, no atomic.Int64
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					n := drawn.Add(1)
					h := now.at(n-rand.Int64N(writers), fmt.Sprint(n))
					switch err := write(h, fmt.Sprintf("%d/%s", h.Token, h.ID)); {
					case errors.Is(err, fence.ErrStale):
						no.Add(1)
					case err != nil:
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return no.Load()
	}
	t.Run("guard", func(t *testing.T) {
		var m fence.Memory
		var order []string // guarded by g
		refused := run(t, func(h fence.Hold, what string) error {
			return m.Do(h, func() error { order = append(order, what); return nil })
		})
		check(t, order, refused)
	})
	onRedis(t, func(t *testing.T, rdb *redis.Client) {
		f := fence.Redis{Client: rdb}
		refused := run(t, func(h fence.Hold, what string) error {
			_, err := f.Do(t.Context(), h, "{r}:order", "RPUSH", what)
			return err
		})
		order, err := rdb.LRange(t.Context(), "{r}:order", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		check(t, order, refused)
	})
}

// Of returns the hold of ctx. It is equal in repeated calls, and larger under a later hold. After a
// release or a loss, and in a detached context, Of returns ErrNoHold with the cause.
func TestOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		lease, err := locks.Acquire(t.Context(), "k", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := fence.Of(lease.Context(), "k")
		if err != nil || h.Key != "k" || h.Token != lease.Token() || h.ID == "" {
			t.Errorf("%+v, %v", h, err)
		}
		if again, err := fence.Of(lease.Context(), "k"); err != nil || again != h {
			t.Errorf("%+v, then %+v, %v", h, again, err)
		}
		for name, ctx := range map[string]context.Context{"no hold": t.Context(), "detached": guard.Detach(lease.Context())} {
			if _, err := fence.Of(ctx, "k"); !errors.Is(err, fence.ErrNoHold) {
				t.Errorf("%s: %v", name, err)
			}
		}
		locktest.Lose(lease.Context())
		if _, err := fence.Of(lease.Context(), "k"); !errors.Is(err, fence.ErrNoHold) || !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("lost: %v", err)
		}
		_ = lease.Release(t.Context())
		next, err := locks.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if later, err := fence.Of(next.Context(), "k"); err != nil || later.Token <= h.Token || later.ID == h.ID {
			t.Errorf("%+v after %+v, %v", later, h, err)
		}
		_ = next.Release(t.Context())
	})
}

// A StaleError matches ErrStale, has the class "stale" for telemetry and a text that says why. None
// of them contains the id of the hold.
func TestStaleError(t *testing.T) {
	for want, e := range map[string]*fence.StaleError{
		`fence: token 5 of "k" is stale: 7 was seen`:                                   {Key: "k", Token: 5, Seen: 7},
		`fence: token 5 of "k" belongs to another hold`:                                {Key: "k", Token: 5, Seen: 5},
		`fence: token 5 of "k" is older than Keep, and the resource remembers no hold`: {Key: "k", Token: 5},
	} {
		if e.Error() != want || !errors.Is(e, fence.ErrStale) || e.ErrorType() != "stale" {
			t.Errorf("%q, %q", e.Error(), e.ErrorType())
		}
	}
}

// After a write that fails or panics, a Memory is usable and its hold is the newest one.
func TestMemoryFailure(t *testing.T) {
	var m fence.Memory
	now := tokens()
	boom := errors.New("boom")
	if err := m.Do(now.at(5, "a"), func() error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = m.Do(now.at(6, "b"), func() error { panic("oh") })
	}()
	if err := m.Advance(now.at(5, "a")); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	other := fence.Hold{Key: "other", Token: 1, ID: "c"}
	if err := m.Advance(other); err != nil {
		t.Errorf("another key: %v", err)
	}
}
