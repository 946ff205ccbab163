package guard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// One call runs. Of those that come meanwhile, the first one runs afterwards, and the others are
// covered by it, in all processes.
// Shows: A14, A15
func TestLatest(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var running, runs atomic.Int32
		work := func(context.Context) error {
			if running.Add(1) > 1 {
				t.Error("two run at the same time")
			}
			defer running.Add(-1)
			runs.Add(1)
			time.Sleep(3 * time.Second)
			return nil
		}
		var calls sync.WaitGroup
		var ran, covered atomic.Int32
		for i := range 9 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				locks := f.locks
				if i%2 == 1 {
					locks = f.other
				}
				did, err := guard.Latest(context.Background(), locks, "k", lockcore.Terms{Wait: time.Minute}, work)
				switch {
				case err != nil:
					t.Error(err)
				case did:
					ran.Add(1)
				default:
					covered.Add(1)
				}
			})
		}
		calls.Wait()
		if ran.Load() != 2 || covered.Load() != 7 || runs.Load() != 2 {
			t.Errorf("%d calls ran, %d are covered, %d runs; want 2, 7, 2", ran.Load(), covered.Load(), runs.Load())
		}
		if did, err := guard.Latest(context.Background(), f.locks, "k", noWait, work); !did || err != nil {
			t.Errorf("a later call ran: %v, error %v", did, err)
		}
	})
}

// A run that began before a call does not cover it, however it ends. A run that fails covers no call,
// and its waiters run.
// Shows: A14
func TestLatestFails(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		began, finish := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = guard.Latest(context.Background(), f.other, "k", lockcore.Terms{}, func(context.Context) error {
				close(began)
				<-finish
				return nil
			})
		}()
		<-began
		n := 0
		var calls sync.WaitGroup
		for i := range 3 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				did, err := guard.Latest(context.Background(), f.locks, "k", lockcore.Terms{Wait: time.Minute}, func(context.Context) error {
					if n++; n == 1 {
						return errBoom
					}
					return nil
				})
				if want := i < 2; did != want || errors.Is(err, errBoom) != (i == 0) {
					t.Errorf("call %d ran: %v, error %v", i, did, err)
				}
			})
		}
		time.Sleep(time.Second)
		close(finish)
		calls.Wait()
		if n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}

// The process of a run dies: a call that waits runs.
// Shows: A14
func TestLatestDies(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		began, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			_, _ = guard.Latest(context.Background(), f.locks, "k", lockcore.Terms{}, func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				return nil
			})
		}()
		<-began
		f.faults.Silence() // as a death
		did, err := guard.Latest(context.Background(), f.other, "k", lockcore.Terms{Wait: time.Hour}, nothing)
		if !did || err != nil {
			t.Errorf("it ran: %v, error %v", did, err)
		}
		<-stopped
		f.faults.Heal()
	})
}

// A call of a free key costs three commands: acquire, record, release. A nested call runs at once.
func TestLatestCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		for range 2 {
			f.count.Reset()
			inner := false
			did, err := guard.Latest(context.Background(), f.locks, "k", lockcore.Terms{}, func(ctx context.Context) error {
				var err error
				inner, err = guard.Latest(ctx, f.locks, "k", lockcore.Terms{}, nothing)
				return err
			})
			if synctest.Wait(); !did || !inner || err != nil {
				t.Errorf("it ran: %v, the nested one: %v, error %v", did, inner, err)
			}
		}
		if n := len(f.count.Commands()); n != 4 { // the nested one records its success too
			t.Errorf("%d commands: %q", n, f.count.Commands())
		}
	})
}

// While Redis is unavailable a call waits as one of Exclusive does, and a success that is not recorded
// covers no call.
func TestLatestUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.faults.Down()
		time.AfterFunc(time.Second, f.faults.Heal)
		if did, err := guard.Latest(context.Background(), f.locks, "k", lockcore.Terms{Wait: 10 * time.Second}, nothing); !did || err != nil {
			t.Errorf("it ran: %v, error %v", did, err)
		}
		f.faults.Down()
		did, err := guard.Latest(context.Background(), f.locks, "k", noWait, nothing)
		if did || !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("it ran: %v, error %v", did, err)
		}
	})
}

// A call that does not run says why, and names what is wrong.
func TestLatestErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		lease, err := f.other.Acquire(t.Context(), "busy", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		for want, call := range map[string]func() (bool, error){
			"locks and fn must not be nil": func() (bool, error) {
				return guard.Latest(t.Context(), nil, "k", lockcore.Terms{}, nothing)
			},
			"Terms.Lease is 1ns, must be between": func() (bool, error) {
				return guard.Latest(t.Context(), f.locks, "k", lockcore.Terms{Lease: 1}, nothing)
			},
			"bad key":        func() (bool, error) { return guard.Latest(t.Context(), f.locks, "", lockcore.Terms{}, nothing) },
			`"busy" is busy`: func() (bool, error) { return guard.Latest(t.Context(), f.locks, "busy", noWait, nothing) },
			"waited 1s": func() (bool, error) {
				return guard.Latest(t.Context(), f.locks, "busy", lockcore.Terms{Wait: time.Second}, nothing)
			},
		} {
			if did, err := call(); did || !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), want) {
				t.Errorf("it ran: %v, error %v, want %q", did, err, want)
			}
		}
	})
}
