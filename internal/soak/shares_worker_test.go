package soak_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	shareLease = 3 * time.Second / 2
	sharers    = 12 // goroutines of a worker
	minLimit   = 3
	limits     = 3 // the limit is minLimit to minLimit+limits-1, and changes
	changes    = 2 * time.Second
	beat       = 20 * time.Millisecond // interval at which a longer hold reports that it is valid
)

// shareKeys are the keys of the soak of shares. All have exclusive calls.
var shareKeys = []string{"permits", "readers", "mixed"}

// line is a line that a worker writes: a hold that begins, a hold that is still valid or ends, or
// its report.
type line struct {
	ID     int64   `json:"i,omitempty"`
	Hold   *inside `json:"h,omitempty"`
	Valid  int64   `json:"v,omitempty"`
	Report *report `json:"r,omitempty"`
}

// inside is a hold. The clock is that of the machine, in ns.
type inside struct {
	Key    string `json:"k"`
	Limit  int    `json:"l,omitempty"` // 0: exclusive
	Weight int    `json:"w,omitempty"`
	Token  int64  `json:"t"`
	Called int64  `json:"c"`
	Seen   int64  `json:"s"`           // the hold was valid then,
	Valid  int64  `json:"v,omitempty"` // and then, which is the last time that the worker checked it
	proc   string
}

// shares calls guard.Limited, guard.Shared and guard.Exclusive until the end. It also holds all
// permits of the key that has its name, so that the parent can wait for them.
func (w *worker) shares() {
	w.end = time.Now().Add(w.For)
	ctx, cancel := context.WithDeadline(context.Background(), w.end)
	defer cancel()
	var wg sync.WaitGroup
	for range sharers {
		wg.Go(func() { w.run(w.shareCall) })
	}
	for weight := 1; weight < minLimit; weight++ {
		wg.Go(func() { w.keep(ctx, weight) })
	}
	wg.Wait()
	w.fail("close", w.locks.Close(context.Background()))
	w.fail("close", w.rdb.Close())
	chaos.WriteLine(os.Stdout, line{Report: &w.out})
}

// keep holds permits of the key of the worker's name. It acquires them again after a loss.
func (w *worker) keep(ctx context.Context, weight int) {
	for ctx.Err() == nil {
		terms := lockcore.Terms{Wait: lockcore.Forever, Weight: weight}
		w.ended(ctx, terms, guard.Limited(ctx, w.locks, w.Name, minLimit, terms, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}))
	}
}

func (w *worker) shareCall(ctx context.Context) {
	key, terms := shareKeys[rand.IntN(len(shareKeys))], lockcore.Terms{Wait: lockcore.Forever}
	switch rand.IntN(20) {
	case 0:
		terms.Wait = lockcore.NoWait
	case 1, 2:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, rand.N(20*time.Millisecond), context.Canceled)
		defer cancel()
	}
	began := time.Now()
	turn := func(limit int) func(context.Context) error {
		return func(ctx context.Context) error {
			waited := time.Since(began).Milliseconds()
			w.note(func(r *report) { r.LongestMS = max(r.LongestMS, waited) })
			w.inside(ctx, began, key, limit, max(terms.Weight, 1))
			return nil
		}
	}
	var err error
	switch n := rand.IntN(20); {
	case n == 0:
		err = guard.Exclusive(ctx, w.locks, key, terms, turn(0))
	case key == "readers" || key == "mixed" && n < 10:
		err = guard.Shared(ctx, w.locks, key, terms, turn(lockcore.Unlimited))
	default:
		limit := minLimit + int(began.UnixNano()/int64(changes))%limits
		if n == 1 { // one that does not know of the change yet
			limit = minLimit + rand.IntN(limits)
		}
		terms.Weight = 1 + rand.IntN(minLimit)
		err = guard.Limited(ctx, w.locks, key, limit, terms, turn(limit))
	}
	w.ended(ctx, terms, err)
}

// inside reports to the parent that it holds key, and until when. It takes the time first, and then
// checks the lease. So a pause between the two does not count as a part of the hold.
func (w *worker) inside(ctx context.Context, called time.Time, key string, limit, weight int) {
	seen := time.Now()
	hold, ok := lockcore.HoldOf(ctx, key)
	if !ok {
		return
	}
	id := w.ids.Add(1)
	chaos.WriteLine(os.Stdout, line{ID: id, Hold: &inside{
		Key: key, Limit: limit, Weight: weight, Token: hold.Token, Called: called.UnixNano(), Seen: seen.UnixNano(),
	}})
	w.note(func(r *report) { r.Acquired[key]++ })
	stay := rand.N(2 * time.Millisecond)
	switch n := rand.IntN(2000); {
	case n == 0:
		stay = shareLease/2 + rand.N(shareLease)
	case n < 20:
		stay = rand.N(100 * time.Millisecond)
	}
	for end := seen.Add(stay); ; {
		time.Sleep(min(beat, time.Until(end)))
		now := time.Now()
		if _, ok := lockcore.HoldOf(ctx, key); !ok {
			return
		}
		chaos.WriteLine(os.Stdout, line{ID: id, Valid: now.UnixNano()})
		if !now.Before(end) {
			return
		}
	}
}

// ended counts how a call ended. A fault may take a lease, and may keep Redis from a reply.
func (w *worker) ended(ctx context.Context, terms lockcore.Terms, err error) {
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), context.Canceled):
		w.note(func(r *report) { r.Gone++ })
	case errors.Is(err, lockcore.ErrLost):
		w.note(func(r *report) { r.Lost++ })
	case errors.Is(err, lockcore.ErrUnavailable):
		w.note(func(r *report) { r.Unavailable++ })
	case errors.Is(err, lockcore.ErrBusy) && terms.Wait == lockcore.NoWait:
		w.note(func(r *report) { r.Refused++ })
	case ctx.Err() != nil && !time.Now().Before(w.end) && time.Now().Before(w.end.Add(shareLease)): // of keep
	default:
		w.fail("call", err)
	}
}
