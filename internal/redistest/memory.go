package redistest

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// Memory is a Redis in memory, without a socket.
type Memory struct {
	Redis  *miniredis.Miniredis
	server *pipe.Server
}

// Bubble returns a Redis that follows the clock of the testing/synctest bubble, or the real clock
// outside of a bubble. It is closed when the test ends. Clients must be made in the same bubble. It
// skips the test if only tests on real servers are to run, see [testlevel.InMemory].
func Bubble(tb testing.TB) *Memory {
	tb.Helper()
	testlevel.InMemory(tb)
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	memory := On(m)
	tb.Cleanup(memory.server.Close)
	return memory
}

// Masters returns clients of three servers like that of [Bubble], for lockcore.NewQuorum.
func Masters(tb testing.TB) []*redis.Client {
	tb.Helper()
	var clients []*redis.Client
	for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"} {
		clients = append(clients, Bubble(tb).Client(tb, func(o *redis.Options) { o.Addr = addr }))
	}
	return clients
}

// On returns a Memory on m. The caller closes m.
func On(m *miniredis.Miniredis) *Memory { return &Memory{Redis: m, server: pipe.NewServer(m)} }

// Identify changes what INFO says.
func (m *Memory) Identify(change func(*pipe.Identity)) { m.server.Identify(change) }

// Options returns fresh options for a client of m.
func (m *Memory) Options() *redis.Options { return m.server.Options() }

// Client returns a client of m that is closed when the test ends. Each edit may change the options
// before.
func (m *Memory) Client(tb testing.TB, edit ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return client(tb, m.Options(), edit)
}
