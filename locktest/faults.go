package locktest

import (
	"context"
	"net"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
)

// Faults is a network between clients and Redis that fails on command, for tests of what your code
// does while Redis is away:
//
//	server, faults := locktest.NewServer(t), locktest.NewFaults(t)
//	locks := server.Locker(lockcore.Options{}, faults)
//	faults.Down()
//	_, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: time.Second}) // ErrUnavailable
//	faults.Heal()
//
// It works with real connections and, in a testing/synctest bubble, with a [Server]. It uses no
// clock but that of package time, and honors deadlines like a socket. Use one Faults for each
// process that a test simulates. All methods may be called at any time from any goroutine.
type Faults struct{ network *faulty.Network }

// NewFaults returns a network without faults. It cuts all connections when the test ends.
func NewFaults(tb testing.TB) *Faults {
	tb.Helper()
	return &Faults{faulty.New(tb)}
}

// Dial returns a dialer that calls next and passes its connections through f, for the
// redis.Options of a client of your own. For TLS, next must encrypt, because f reads the data.
func (f *Faults) Dial(next func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return f.network.Dial(next)
}

// Down cuts every connection, and new ones fail, until Heal.
func (f *Faults) Down() { f.network.Down() }

// Silence makes the network a black hole until Heal. Data that is sent meanwhile does not arrive,
// and dials hang; no error shows this. Heal delivers the data on connections that are still open,
// as TCP does.
func (f *Faults) Silence() { f.network.Silence() }

// Heal ends Down and Silence.
func (f *Faults) Heal() { f.network.Heal() }
