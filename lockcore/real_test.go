package lockcore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/lockworld"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// role is what another process of a test does.
type role struct {
	Addr string // it holds a key there until it is killed
	Spin bool   // it is busy until it is killed
}

func (r role) play(in *bufio.Scanner) error {
	if r.Spin {
		compute(nil)
	}
	l, err := lockcore.New(redis.NewClient(&redis.Options{Addr: r.Addr}), lockcore.Options{})
	if err != nil {
		return err
	}
	if _, err := l.Acquire(context.Background(), "k", lockcore.Terms{Lease: 3 * time.Second}); err != nil {
		return err
	}
	process.WriteLine(os.Stdout, "held")
	in.Scan() // until the test kills it, or is gone
	return nil
}

// A holder is killed. A waiter gets its key within the lease and 250 ms.
// Shows: I7
func TestRealKilledHolder(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	w, control := realWorld(t), redistest.NewControl(t)
	l, _, _ := w.Locker(lockcore.Options{})
	for _, after := range []time.Duration{100 * time.Millisecond, 3500 * time.Millisecond} {
		p, said := process.Listen[string](t, role{Addr: w.Redis.Options().Addr})
		if line := <-said; line != "held" {
			t.Fatalf("the holder said %q", line)
		}
		got := make(chan *lockcore.Lease)
		go func() {
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			got <- le
		}()
		time.Sleep(after) // the holder has renewed its lease, or not yet
		left := w.Left(l, "k")
		killed := time.Now()
		p.Kill()
		le := <-got
		took := time.Since(killed)
		t.Logf("killed %v after the grant with %v of the lease left: acquired after %v", after, left, took)
		if took > left+250*time.Millisecond+control.Late(killed) || !le.Abandoned() {
			t.Errorf("acquired after %v, abandoned %v", took, le.Abandoned())
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The network of a holder loses all packets, on a real server. The ctx of the hold ends with
// ErrLost before the lease ends.
// Shows: I4
func TestRealSilence(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	w, control := realWorld(t), redistest.NewControl(t)
	l, faults, _ := w.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second}})
	for range 2 {
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		canceled := make(chan time.Time, 1)
		context.AfterFunc(le.Context(), func() { canceled <- time.Now() })
		faults.Silence()
		at := <-canceled
		fields, err := redistest.Fields(t.Context(), w.Redis, storedNames(event.KindExclusive, "k")[0])
		ok(t, err)
		x, err := strconv.ParseInt(fields["x"], 10, 64)
		ok(t, err)
		end := time.UnixMicro(x)
		t.Logf("canceled %v before the lease ended", end.Sub(at))
		if at.After(end.Add(control.Late(end.Add(-500*time.Millisecond)))) || !errors.Is(context.Cause(le.Context()), lockcore.ErrLost) {
			t.Errorf("canceled %v before the end of the lease: %v", end.Sub(at), context.Cause(le.Context()))
		}
		faults.Heal()
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
	}
}

// A real server stops. The ctx of the hold ends with ErrLost before the lease ends.
// Shows: I4
func TestRealStoppedServer(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	s := redistest.Real(t)
	w := lockworld.At(t, s)
	l, _, _ := w.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second}})
	control, start := redistest.NewControl(t), time.Now()
	le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
	s.Pause()
	<-le.Context().Done()
	if d := time.Since(start); d >= 3*time.Second+control.Late(start) || !errors.Is(context.Cause(le.Context()), lockcore.ErrLost) {
		t.Errorf("canceled after %v: %v", d, context.Cause(le.Context()))
	}
	s.Resume()
	_ = le.Release(t.Context())
}

// Many goroutines acquire two keys of a real server. A key never has two holders, and each call is
// served.
// Shows: I1
func TestRealContention(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	a, _, _ := w.Locker(lockcore.Options{})
	b, _, _ := w.Locker(lockcore.Options{})
	const workers, turns = 32, 25
	var inside, sum [2]atomic.Int64
	done := make(chan error, workers)
	for i := range workers {
		go func() {
			l := []*lockcore.Locker{a, b}[i%2]
			for n := range turns {
				key := (i + n) % 2
				le, err := l.Acquire(t.Context(), fmt.Sprint("k", key), lockcore.Terms{Wait: time.Minute})
				if err != nil {
					done <- err
					return
				}
				if n := inside[key].Add(1); n != 1 {
					t.Errorf("%d holders at the same time", n)
				}
				sum[key].Add(1)
				inside[key].Add(-1)
				if err := le.Release(t.Context()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := sum[0].Load() + sum[1].Load(); n != workers*turns {
		t.Errorf("%d holds, want one for each call", n)
	}
}
