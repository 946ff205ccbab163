package history_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// share reads the register of a key under a share, or writes it in a hold of the key alone, or
// tries to.
func (w *worker) share(ctx context.Context) {
	key, t, k := w.key(), lockcore.Terms{Wait: lockcore.Forever, Lease: lease}, acquire
	switch n := rand.IntN(20); {
	case n < 3:
		t.Wait, k = lockcore.NoWait, try
	case n < 4:
		t.Wait = time.Millisecond + rand.N(5*time.Millisecond)
	case n < 5:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		defer cancel()
	}
	writes := chance(8)
	call := testcall.Call{Terms: t}
	if !writes {
		call.Limit.N = lockcore.Unlimited
	}
	wait, cancel := context.WithTimeoutCause(ctx, stuck, errStuck)
	defer cancel()
	e := w.begin(k, int32(key), 0)
	e.shared = !writes
	le, err := call.Acquire(wait, w.locks, w.names[key])
	if err != nil {
		w.end(e, w.refused(wait, err))
		return
	}
	r := &w.registers[key]
	e.hold, e.token = w.holds.Add(1), le.Token()
	by := e.hold
	if e.shared {
		by = 0
	}
	value, ok := r.Read(e.token, by)
	e.value = value
	w.end(e, yes)
	yield()
	if chance(50) {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	if writes && ok {
		if ok = r.Write(e.token, by, value+1); ok {
			value++
		}
	} else if ok {
		value, ok = r.Read(e.token, by)
	}
	alive := w.now()
	if kept := le.Context().Err() == nil; kept && !ok {
		w.stale.Add(1)
	}
	w.take()
	end := w.begin(leave, e.key, e.hold)
	end.shared, end.value = e.shared, value
	if left(le.Release(context.WithValue(context.Background(), workerKey{}, w))) != yes {
		end.call = min(alive, end.call) // it ended since then
	}
	w.end(end, yes)
}
