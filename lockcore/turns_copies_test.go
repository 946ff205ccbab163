package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

const (
	oneWay = time.Millisecond // from a process to Redis, and back
	tenure = 3 * time.Millisecond

	inLine    = 4 // calls of one process
	everybody = -1
)

// queue is one life of a line: process b has the key, calls of process a stand in line for it, and the ctx of one of them ends.
type queue struct {
	*world
	a, b    *lockcore.Locker
	faults  *locktest.Faults
	sent    *redistest.Counter // by a
	calls   sync.WaitGroup
	packets int // of a, guarded by faults

	mu      sync.Mutex
	ended   time.Time
	served  []int // calls of a, in order
	granted int   // leases of a and b
	token   int64 // the last one
	running bool
	died    bool // a did
	records int

	start time.Time
	took  time.Duration // until everybody was served
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{world: newWorld(t)}
	terms := lockcore.Terms{Lease: 5 * time.Second}
	q.a, q.faults, q.sent = q.locker(lockcore.Options{Terms: terms})
	q.b, _, _ = q.locker(lockcore.Options{Terms: terms})
	o := q.dial()
	o.Dialer = q.sent.Dial(q.faults.Dial(o.Dialer))
	warm := redis.NewClient(o) // Redis, the faults and the counter know all scripts
	for _, s := range lockcore.Scripts {
		if err := s.Load(t.Context(), warm).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_ = warm.Close()
	q.sent.Reset()
	q.start = time.Now()
	return q
}

// tenure is what a lease is for; i is the call of a, or -1. It ends early with the lease.
func (q *queue) tenure(le *lockcore.Lease, i int) {
	q.begins(le, i)
	defer q.ends()
	select {
	case <-time.After(tenure):
	case <-le.Context().Done():
	}
}

// begins notes a tenure: it is alone, its token is greater than all before it, and nothing was abandoned.
func (q *queue) begins(le *lockcore.Lease, i int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i >= 0 {
		q.served = append(q.served, i)
	}
	q.granted++
	if q.running {
		q.t.Errorf("call %d is not alone", i)
	}
	if le.Token() <= q.token {
		q.t.Errorf("token %d after %d", le.Token(), q.token)
	}
	if le.Abandoned() && !q.died {
		q.t.Error("called abandoned for nothing")
	}
	q.token, q.running = le.Token(), true
}

func (q *queue) ends() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = false
}

// acquire is call i of a, and that of b if i < 0.
func (q *queue) acquire(ctx context.Context, i int) error {
	l := q.a
	if i < 0 {
		l = q.b
	}
	le, err := l.Acquire(ctx, "k", long)
	if err != nil {
		return err
	}
	q.tenure(le, i)
	if err := le.Release(ctx); err != nil {
		q.t.Errorf("release: %v", err)
	}
	return nil
}

// streaks lets the calls of a follow each other, each with a streak of its own, and b in between.
func (q *queue) streaks(ctx context.Context) {
	theirs := q.must(q.b.Acquire(q.t.Context(), "k", long))
	for i := range inLine {
		q.calls.Go(func() {
			if err := q.acquire(ctx, i); err != nil && ctx.Err() == nil {
				q.t.Errorf("call %d: %v", i, err)
			}
		})
		synctest.Wait()
	}
	q.calls.Go(func() {
		if err := q.acquire(q.t.Context(), -1); err != nil {
			q.t.Errorf("b: %v", err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	_ = theirs.Release(q.t.Context())
}

// whenHeld returns when token tenures have begun.
func (q *queue) until(granted int) {
	for q.count() < granted {
		time.Sleep(time.Millisecond)
	}
}

func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.granted
}

// A rotation that is lost, cut, sent twice or comes late, be it after its next ask was granted, has ended or was given up, costs a
// second or two: no second holder, no lost place, no stuck key.
func TestRotateFaults(t *testing.T) {
	hits := 0
	for kind, plant := range faultKinds {
		for n := 1; ; n++ {
			struck := false
			for _, late := range []string{"after the grant", "after all", "given up"} {
				if kind != "held up" && late == "after the grant" {
					continue
				}
				t.Run(fmt.Sprintf("%s %d/%s", kind, n, late), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						q := newQueue(t)
						q.faults.Delay(oneWay)
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						f := plant(q.faults, locktest.Nth(n, locktest.Script("rotate")))
						q.streaks(ctx)
						select {
						case <-f.Struck():
							struck = true
						case <-time.After(time.Minute):
						}
						switch granted := q.count(); {
						case !struck:
						case late == "given up":
							time.Sleep(oneWay / 2)
							cancel()
						case late == "after the grant":
							q.until(granted + 1)
							f.Deliver()
						}
						q.calls.Wait()
						if d := time.Since(q.start); struck && d > 5*time.Second {
							t.Errorf("it took %v", d)
						}
						time.Sleep(6 * time.Second) // what is undone in the background
						if kind == "held up" && struck {
							(&story{world: q.world, a: q.a, b: q.b, faults: q.faults}).late(f)
						}
						q.settled(lockcore.KindExclusive)
					})
				})
			}
			if !struck {
				break
			}
			hits++
		}
	}
	t.Logf("%d faults struck", hits)
}
