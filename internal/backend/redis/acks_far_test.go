package redis_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// farFrom returns the port of a proxy for addr. Data from the client of the proxy arrives d later.
func farFrom(t *testing.T, addr string, d time.Duration) (port string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			end := func() { _, _ = in.Close(), out.Close() }
			context.AfterFunc(ctx, end)
			wg.Go(func() { _, _ = io.Copy(out, in); end() })
			wg.Go(func() { passLate(in, out, d); end() })
		}
	})
	return portOf(l.Addr().String())
}

// passLate copies from one connection to another with a delay of d.
func passLate(to io.Writer, from io.Reader, d time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			_, _ = to.Write(p.data)
		}
	})
	defer wg.Wait()
	defer close(pieces)
	for {
		buf := make([]byte, 64<<10)
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		pieces <- piece{time.Now().Add(d), buf[:n]}
	}
}

// The acknowledgements of a replica take 450 ms. A lease of 3 s is refused, because its grant waits
// for at most a tenth of the lease. The grant of a lease of 7.5 s waits for up to 750 ms, the
// Timeout. It succeeds, and the lease is renewed.
// Shows: P3
func TestReplicaAcksFar(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := &pair{T: t, master: redistest.Real(t, "--repl-diskless-sync-delay", "0")}
	p.replica = redistest.Real(t, "--replicaof", "127.0.0.1 "+farFrom(t, p.master.Addr(), 450*time.Millisecond))
	p.linked()
	count := new(locktest.Recorder)
	l := lockerFor(t, p.master.Client(t), lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1, Timeout: 750 * time.Millisecond}, Observer: count})
	_, err := l.Acquire(t.Context(), "short", lockcore.Terms{Lease: 3 * time.Second, Wait: lockcore.NoWait})
	refusedFor(t, err, 0, 1)
	le := take(t, l, "long", lockcore.Terms{Lease: 7500 * time.Millisecond, Wait: 20 * time.Second}) // a tenth of the lease is the whole Timeout
	before, _ := renewals(count)
	eventually(t, "three renewals", func() bool {
		kept, failed := renewals(count)
		if err := context.Cause(le.Context()); err != nil {
			t.Fatalf("%v: %d renewals kept it, %d failed", err, kept-before, failed)
		}
		return kept > before+2
	})
	if err := le.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// heard is a connection that reports the timeout of each WAIT, in ms.
type heard struct {
	net.Conn
	count func(ms string)
}

var waitFor = regexp.MustCompile(`\$4\r\nwait\r\n\$1\r\n1\r\n\$\d\r\n(\d+)\r\n`)

func (h heard) Write(b []byte) (int, error) {
	for _, m := range waitFor.FindAllSubmatch(b, -1) {
		h.count(string(m[1]))
	}
	return h.Conn.Write(b)
}

// Each grant of a short lease waits for replicas for at most a tenth of the lease, also a grant
// that the release before it made.
// Shows: P3
func TestReplicaAcksShortLease(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	var mu sync.Mutex
	waits := map[string]int{}
	count := new(redistest.Counter)
	rdb := p.master.Client(t, func(o *redis.Options) {
		dial := count.Dial(o.Dialer)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return heard{c, func(ms string) {
				mu.Lock()
				defer mu.Unlock()
				waits[ms]++
			}}, err
		}
	})
	l := lockerFor(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 2 * time.Second}})
	contend(access.WithFixed(t.Context()), t, []*lockcore.Locker{l}, 1000)
	mu.Lock()
	defer mu.Unlock()
	if n := count.Count("wait"); count.Count("rotate") == 0 || len(waits) != 1 || waits["200"] < n*9/10 { // a write may be split in two
		t.Errorf("timeouts of WAIT in ms, with their counts: %v, want 200 only; %s", waits, count)
	}
}

// blocked matches the number of clients that a server has blocked in a command.
var blocked = regexp.MustCompile(`\bblocked_clients:(\d+)`)

// 100 records wait for a replica that does not acknowledge. A release does not wait behind them:
// when it returns, the key is free.
// Shows: P3
func TestReplicaAcksManyRecords(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	l := lockerFor(t, p.master.Client(t), lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}})
	witness := p.on(p.master, 0)
	var held, records [100]*lockcore.Lease
	for i := range held[:5] {
		held[i] = take(t, l, fmt.Sprint("x", i), lockcore.Terms{})
	}
	for i := range records {
		records[i] = claimFor(t, l, fmt.Sprint("o", i))
	}
	p.silence()
	var wg sync.WaitGroup
	for _, le := range records {
		wg.Go(func() {
			if err := le.Complete(t.Context(), []byte("r"), time.Hour); err != nil {
				t.Error(err)
			}
		})
	}
	c := p.master.Client(t)
	eventually(t, "16 records wait for the replica", func() bool {
		m := blocked.FindStringSubmatch(c.Info(t.Context(), "clients").Val())
		n, _ := strconv.Atoi(m[1])
		return n >= 16
	})
	for i, le := range held[:5] {
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if h, err := witness.Inspect(t.Context(), event.KindExclusive, fmt.Sprint("x", i)); err != nil || h.State != lockcore.StateFree {
			t.Errorf("after its release x%d is %v, %v", i, h.State, err)
		}
	}
	p.link.Heal()
	wg.Wait()
}
