package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// worker makes one call after the other in one round.
type worker struct {
	*load
	id         int16
	locks      *lockcore.Locker
	events     []operation
	unanswered bool // the end of the last hold got no reply
}

func (w *worker) now() int64 { return int64(time.Since(w.base)) }

func (w *worker) work() {
	ctx := context.WithValue(w.Context(), workerKey{}, w)
	slow := int(w.id) < slowKeys // these are there for the watchdog
	for w.take() {
		switch {
		case w.shared:
			w.share(ctx)
		case slow:
			w.exclusive(ctx, len(w.names)-1-int(w.id), lockcore.Terms{Wait: lockcore.Forever, Lease: lease}, true)
		case chance(12):
			w.once(ctx)
		case chance(50):
			w.revoke(ctx)
		default:
			w.anyTerms(ctx)
		}
	}
}

// key is a hot one half the time.
func (w *worker) key() int {
	if chance(2) {
		return rand.IntN(min(hotKeys, len(w.names)))
	}
	return rand.IntN(len(w.names))
}

func (w *worker) anyTerms(ctx context.Context) {
	key, t := w.key(), lockcore.Terms{Wait: lockcore.Forever, Lease: lease}
	slow := key >= len(w.names)-slowKeys
	switch n := rand.IntN(20); {
	case n < 4 || slow && n < 16:
		t.Wait = lockcore.NoWait
	case n < 6 || slow:
		t.Wait = time.Millisecond + rand.N(5*time.Millisecond)
	case n < 7:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		defer cancel()
	case n < 8:
		t.Lease = 2 * lease
	}
	w.exclusive(ctx, key, t, false)
}

// begin returns the operation of a call that is about to be made.
func (w *worker) begin(k what, key, hold int32) operation {
	return operation{what: k, key: key, hold: hold, worker: w.id, call: w.now()}
}

// end records the answer of the call.
func (w *worker) end(e operation, a answer) {
	e.ret, e.answer = w.now(), a
	if w.unanswered && (e.what == leave || e.what == complete) {
		e.ret = never
	}
	w.unanswered = false
	w.events = append(w.events, e)
}

// exclusive is one hold of an exclusive key, or the try to have one.
func (w *worker) exclusive(ctx context.Context, key int, t lockcore.Terms, slow bool) {
	k := acquire
	if t.Wait == lockcore.NoWait {
		k = try
	}
	wait, cancel := context.WithTimeoutCause(ctx, stuck, errStuck)
	defer cancel()
	e := w.begin(k, int32(key), 0)
	le, err := w.locks.Acquire(wait, w.names[key], t)
	if err != nil {
		w.end(e, w.refused(wait, err))
		return
	}
	e.hold, e.token = w.holds.Add(1), le.Token()
	w.end(e, yes)
	n := hold{worker: w, key: int32(key), id: e.hold, leases: []*lockcore.Lease{le}, alive: w.events[len(w.events)-1].ret}
	n.hold(slow)
}

var errStuck = errors.New("stuck")

// refused returns the reason why a call got nothing.
func (w *worker) refused(ctx context.Context, err error) answer {
	switch {
	case errors.Is(context.Cause(ctx), errStuck):
		w.Errorf("worker %d waits for ever: %v", w.id, err)
		return gone
	case ended(ctx):
		return gone
	case errors.Is(err, lockcore.ErrBusy):
		return busy
	case errors.Is(err, lockcore.ErrUnavailable):
		return unknown
	default:
		w.Errorf("worker %d: %v", w.id, err)
		return unknown
	}
}

// ended reports whether ctx is over. The timer of ctx may fire shortly after its deadline.
func ended(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

func (w *worker) revoke(ctx context.Context) {
	key := w.key()
	e := w.begin(revoke, int32(key), 0)
	err := w.locks.Revoke(ctx, event.KindExclusive, w.names[key])
	if err != nil {
		w.end(e, unknown)
		return
	}
	w.end(e, yes)
}

// once is one call of a once key that a few calls share.
func (w *worker) once(ctx context.Context) {
	n := w.claims.Add(1) / onceUses
	ctx, cancel := context.WithTimeoutCause(ctx, stuck, errStuck)
	defer cancel()
	e := w.begin(claim, int32(len(w.names))+int32(n), 0)
	le, rec, err := w.locks.Claim(ctx, fmt.Sprint("charge:", n), lockcore.Claim{Terms: lockcore.Terms{Wait: lockcore.Forever, Lease: lease}, Keep: time.Minute})
	switch {
	case err != nil:
		w.end(e, w.refused(ctx, err))
		return
	case rec != nil:
		by, bad := strconv.ParseInt(string(rec.Data), 10, 32)
		if bad != nil {
			w.Errorf("a record says %q", rec.Data)
		}
		e.by, e.attempt = int32(by), int32(rec.Attempt)
		w.end(e, record)
		return
	}
	e.hold, e.token, e.attempt = w.holds.Add(1), le.Token(), int32(le.Attempt())
	w.end(e, yes)
	w.take()
	if chance(3) { // it has failed: the next one runs
		e = w.begin(leave, e.key, e.hold)
		w.end(e, left(le.Release(ctx)))
		return
	}
	e = w.begin(complete, e.key, e.hold)
	w.end(e, left(le.Complete(ctx, strconv.AppendInt(nil, int64(e.hold), 10), time.Minute)))
}

// left returns the answer for the end of a run.
func left(err error) answer {
	switch {
	case err == nil:
		return yes
	case errors.Is(err, lockcore.ErrRevoked):
		return revoked
	default:
		return lost
	}
}

// yield lets others in, if the lock does.
func yield() {
	for range rand.IntN(3) {
		runtime.Gosched()
	}
}
