package locktest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
)

// The network with faults, see package faulty.
type (
	Dialer  = faulty.Dialer
	Fault   = faulty.Fault
	Faults  = faulty.Network
	Match   = faulty.Match
	Request = faulty.Request
)

// NewFaults returns a network without faults. It cuts all connections when the test ends.
func NewFaults(tb testing.TB) *Faults {
	tb.Helper()
	return faulty.New(tb)
}

// Script selects the runs of the script with that name, see [Request].
func Script(name string) Match { return faulty.Script(name) }

// Nth selects the n-th request, counted from 1, of those that m selects.
func Nth(n int, m Match) Match { return faulty.Nth(n, m) }
