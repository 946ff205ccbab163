package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

func ticketOf(t *testing.T, le *lockcore.Lease) string {
	t.Helper()
	ticket, err := le.Ticket(t.Context(), time.Minute)
	ok(t, err)
	return ticket
}

// Adopt waits for the acknowledgements of replicas like Acquire.
// Shows: T4
func TestTicketAcks(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	a, _, _ := w.Locker(lockcore.Options{})
	b, _, _ := w.Locker(lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1, Timeout: 20 * time.Millisecond}})
	ticket := ticketOf(t, w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{})))
	_, err := b.Adopt(t.Context(), ticket, lockcore.Terms{})
	refusedFor(t, err, 0, 1)
	next := w.Must(a.Acquire(t.Context(), "k", long))
	if !next.Abandoned() {
		t.Error("Abandoned is false after a takeover")
	}
	ok(t, next.Release(t.Context()))
}

// Tickets work in a cluster.
func TestTicketCluster(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Cluster(t)
	a, b := lockerFor(t, s.Client(t), lockcore.Options{}), lockerFor(t, s.Client(t), lockcore.Options{})
	for i := range 20 {
		le, err := a.Acquire(t.Context(), fmt.Sprint("k", i), lockcore.Terms{})
		ok(t, err)
		got, err := b.Adopt(t.Context(), ticketOf(t, le), lockcore.Terms{})
		ok(t, err)
		ok(t, got.Release(t.Context()))
	}
}

// With a replica in sync Adopt sends one command and one WAIT. The adopted lease is renewed.
func TestTicketAcksHealthy(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	count := new(redistest.Counter)
	rdb := p.master.Client(t, func(o *redis.Options) { o.Dialer = count.Dial(o.Dialer) })
	b := lockerFor(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 3 * time.Second}})
	warm := ticketOf(t, take(t, b, "warm", lockcore.Terms{}))
	le, err := b.Adopt(t.Context(), warm, lockcore.Terms{})
	ok(t, err)
	ok(t, le.Release(t.Context()))
	ticket := ticketOf(t, take(t, p.on(p.master, 1), "k", lockcore.Terms{}))
	count.Reset()
	got, err := b.Adopt(t.Context(), ticket, lockcore.Terms{})
	ok(t, err)
	if s := count.String(); s != "adopt 1, wait 1" {
		t.Errorf("sent: %s", s)
	}
	eventually(t, "two renewals", func() bool { return count.Count("renew") >= 2 })
	ok(t, got.Release(t.Context()))
}

// The client of the user may send adopt.lua again after a lost reply. The hold is still adopted
// once.
// Shows: T2
func TestTicketForeignClient(t *testing.T) {
	t.Parallel()
	for name, client := range foreign {
		t.Run(name, func(t *testing.T) {
			w, faults := realWorld(t), faulty.New(t)
			o := w.Options()
			o.Dialer, o.MinRetryBackoff, o.MaxRetryBackoff = faults.Dial(o.Dialer), time.Millisecond, time.Millisecond
			l := lockerOn(t, client(o), lockcore.Options{})
			other, _, _ := w.Locker(lockcore.Options{})
			ok(t, w.Must(l.Adopt(t.Context(), ticketOf(t, w.Must(other.Acquire(t.Context(), "warm", noWait))), noWait)).Release(t.Context()))
			ticket := ticketOf(t, w.Must(other.Acquire(t.Context(), "k", noWait)))
			lost := faults.CutReply(faulty.Script("adopt"))
			got := w.Must(l.Adopt(t.Context(), ticket, lockcore.Terms{}))
			if !struckBy(lost) {
				t.Error("inconclusive: no reply was cut")
			}
			_, err := other.Adopt(t.Context(), ticket, lockcore.Terms{})
			if !errors.Is(err, lockcore.ErrLost) {
				t.Errorf("a second Adopt: %v, want ErrLost", err)
			}
			next := ticketOf(t, got)
			ok(t, w.Must(other.Adopt(t.Context(), next, lockcore.Terms{})).Release(t.Context()))
			ok(t, w.Must(l.Acquire(t.Context(), "k", noWait)).Release(t.Context()))
		})
	}
}
