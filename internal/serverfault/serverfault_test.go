package serverfault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) {
	logging.Disable() // the test causes faults on purpose
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

const (
	traffic  = 200         // grants before and after each fault; with fewer the test proves nothing
	recovery = time.Minute // more than a lease, the timed fallback of waiters and a slow machine
)

// During any fault of the server no two holds of a key overlap, unless it lost its data. Tokens
// grow even then. A lease survives a fault that is shorter, and is canceled in time by a longer
// one. Afterwards all callers are served again, and a lease that was held can be released.
func TestServerFaults(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s, control := redistest.Real(t), redistest.NewControl(t)
			admin := s.Client(t)
			ld := newLoad(t, s)
			t.Cleanup(func() { ld.report(f) })
			began := time.Now()
			held, err := ld.locks[0].Acquire(t.Context(), "held", lockcore.Terms{})
			if err == nil {
				err = ld.more(traffic, recovery)
			}
			if err != nil {
				t.Fatal("before: ", err)
			}
			ld.forgot.Store(f.forgets)
			during, over := context.WithCancel(t.Context())
			heard := witness(during, s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 }))
			struck := time.Now()
			f.strike(t, s, admin)
			longer := max(time.Since(struck)-gap, 0)
			over()
			if text := <-heard; !strings.Contains(text, f.says) {
				t.Errorf("inconclusive: no command got %q: %s", f.says, text)
			}
			if err := ld.more(traffic, recovery); err != nil {
				t.Error("afterwards: ", err)
			}
			ld.held(f, held, control.Late(began)+longer)
			ld.end()
			chaos.CheckTTLs(t, admin)
		})
	}
}

// held checks a lease that has no waiters after the fault. A lease is two gaps longer than a short
// fault, so it may also be lost on a machine that is late by more than one gap.
func (ld *load) held(f fault, held *lockcore.Lease, late time.Duration) {
	ld.t.Helper()
	if f.forgets { // the holder learns of that with its next renewal
		<-held.Context().Done()
	}
	err := held.Release(context.Background())
	if !f.forgets && !f.outlast && late > gap && errors.Is(err, lockcore.ErrLost) {
		ld.t.Logf("the lease was lost on a machine that was late by %v", late)
		return
	}
	if lost := f.forgets || f.outlast; lost != errors.Is(err, lockcore.ErrLost) || !lost && err != nil {
		ld.t.Errorf("the lease that was held through it: %v", err)
	}
}

func (ld *load) report(f fault) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.t.Logf("%s: %d grants, %d calls refused, %d overlaps", f.name, ld.grants.Load(), ld.refused, ld.overlaps)
}
