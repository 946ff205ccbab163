package history_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

var (
	ops     = flag.Int("ops", 0, "operations in all; 0: 1,000,000 at level campaign")
	round   = flag.Int("round", 100_000, "operations that are made, and then checked, at a time")
	workers = flag.Int("workers", 64, "goroutines")
	keys    = flag.Int("keys", 256, "exclusive keys")
	lockers = flag.Int("lockers", 4, "Lockers, each as a process would have it")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// The replies to many goroutines of several Lockers can be put into an order in which a reentrant
// mutex with fencing tokens would give them. There is one holder at a time. Tokens grow from hold
// to hold and stay the same in nested calls. A call is busy only while the key is held or waited
// for, and revoked only after a Revoke. All calls get the same record. No increment of a fenced
// register is lost.
// Shows: I1, I2, I3, L5
func TestHistory(t *testing.T) {
	n := *ops
	if n == 0 {
		testlevel.Campaign(t)
		n = 1_000_000
	}
	l := realLoad(t, redistest.Real(t))
	l.run(*workers, n, *round)
	l.judge()
}

// The replies to readers and writers can be put into an order in which a lock with epochs would
// give them. Readers are together under one token, and no writer is beside them. Each sees the
// value of the last writer before its token. A register that checks the tokens of reads and writes
// refuses none.
// Shows: I2, S1, S2, S6
func TestHistoryShares(t *testing.T) {
	n := *ops
	if n == 0 {
		testlevel.Campaign(t)
		n = 1_000_000
	}
	l := realLoad(t, redistest.Real(t))
	l.shared = true
	l.run(*workers, n, *round)
	l.judge()
}

// realLoad is a load on the server, ready to run.
func realLoad(t *testing.T, s *redistest.Server) *load {
	t.Helper()
	l := newLoad(t, *keys)
	for range *lockers {
		l.lockers = append(l.lockers, chaos.Locker(t, s.Client(t), lockcore.Options{Observer: l}))
	}
	return l
}
