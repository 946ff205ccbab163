package lockcore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var (
	starvedLeases = flag.String("starved-leases", "3s", "leases of TestStarvedLeases")
	starvedSpins  = flag.String("starved-spins", "16", "busy goroutines of TestStarvedLeases")
)

// A process that lacks CPU time keeps its leases as long as Redis answers. The test measures how
// many leases are lost beside busy goroutines in the holder's process and two busy processes. It
// judges only the promised case, 3 s beside 16 goroutines. For a table: -starved-leases "1s 3s 10s"
// -starved-spins "2 8 16" -starve 10m, the time for each case.
func TestStarvedLeases(t *testing.T) {
	testlevel.Campaign(t)
	s := redistest.Real(t)
	for range 2 {
		process.Listen[string](t, role{Spin: true})
	}
	for _, lease := range parsed(t, *starvedLeases, time.ParseDuration) {
		for _, spins := range parsed(t, *starvedSpins, func(s string) (n int, err error) { _, err = fmt.Sscan(s, &n); return n, err }) {
			lost, held := starved(t, s, lease, spins)
			t.Logf("lease %v, %d busy goroutines: %d lost in %v of leases, %.1f per hour", lease, spins, lost, held.Round(time.Second), float64(lost)/held.Hours())
			if lost > 0 && lease == 3*time.Second && spins == 16 {
				t.Errorf("lease %v, %d busy goroutines: %d lost", lease, spins, lost)
			}
		}
	}
}

// starved holds 10 leases while goroutines compute. Each 20 s it makes a new Locker, which has no
// connections yet.
func starved(t *testing.T, s *redistest.Server, lease time.Duration, spins int) (lost int64, held time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range spins {
		busy.Go(func() { compute(stop) })
	}
	defer busy.Wait()
	defer close(stop)
	var n, nanos atomic.Int64
	for end := time.Now().Add(*starve); time.Now().Before(end); {
		rdb := s.Client(t)
		l, err := lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Lease: lease, Wait: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), min(20*time.Second, time.Until(end)))
		var holders sync.WaitGroup
		for i := range 10 {
			holders.Go(func() {
				for ctx.Err() == nil {
					le, err := l.Acquire(ctx, fmt.Sprint(i), lockcore.Terms{})
					if err != nil {
						continue // the round has ended, or Redis did not reply in time
					}
					start := time.Now()
					<-le.Context().Done()
					if ctx.Err() == nil && errors.Is(context.Cause(le.Context()), lockcore.ErrLost) {
						n.Add(1)
					}
					nanos.Add(int64(time.Since(start)))
					_ = le.Release(ctx)
				}
			})
		}
		holders.Wait()
		cancel()
		_ = l.Close(t.Context())
		_ = rdb.Close()
	}
	return n.Load(), time.Duration(nanos.Load())
}

func parsed[T any](t *testing.T, list string, parse func(string) (T, error)) (all []T) {
	t.Helper()
	for s := range strings.FieldsSeq(list) {
		v, err := parse(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}
