package chaos_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

func TestMain(m *testing.M) {
	logging.Disable() // the tests cause faults on purpose
	process.Main(m, work, redistest.PoolProbes())
}

// Processes compete for keys while processes, servers and networks fail: see the table of
// scenarios.
// Shows: A14, A15, I1, I3, I7, I8, I11, W2, W10, S1, S2, S5, O5, P1, P2, P3, P4, P5, P8, P9, F2, H3, H5, B2
func TestChaos(t *testing.T) {
	testlevel.Campaign(t)
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			if s.parallel {
				t.Parallel()
			}
			r := s.start(t)
			s.happens(r)
			r.finish()
			checkRun(t, r)
		})
	}
}

// checkRun checks that a run has left nothing behind.
func checkRun(t *testing.T, r *run) {
	t.Helper()
	for _, s := range r.masters {
		chaos.CheckTTLs(t, s.Client(t))
	}
	if r.one != nil && len(r.failed) == 0 {
		chaos.CheckLeftovers(t, r.one.Client(t), "holdfast:2:x:", lease)
		if ch := r.one.Client(t).PubSubChannels(t.Context(), "holdfast:*").Val(); len(ch) != 0 && len(r.lockers) == 0 {
			t.Errorf("still subscribed: %v", ch)
		}
	}
}
