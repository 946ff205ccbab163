package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// queue is the life of a key. Process b has the key, and calls of process a wait for it.
type queue struct {
	*world
	a, b    *lockcore.Locker
	faults  *faulty.Network
	sent    *redistest.Counter // by a
	calls   sync.WaitGroup
	packets int // of a, guarded by faults

	mu      sync.Mutex
	ended   time.Time
	served  []int // calls of a, in order
	granted int   // leases of a and b
	token   int64 // the last token
	running bool
	died    bool // process a has died
	records int

	hold  time.Duration // the time that a call keeps the key
	bound time.Duration // the time until a canceled call returns
	start time.Time
	took  time.Duration // the time until all calls were served
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{world: newWorld(t), hold: hold, bound: 10 * oneWay}
	terms := lockcore.Terms{Lease: 5 * time.Second}
	q.a, q.faults, q.sent = q.Locker(lockcore.Options{Terms: terms})
	q.b, _, _ = q.Locker(lockcore.Options{Terms: terms})
	o := q.Options()
	o.Dialer = q.sent.Dial(q.faults.Dial(o.Dialer))
	warm := redis.NewClient(o) // loads the scripts, and shows their names to the faults and the counter
	for _, s := range wire.Scripts() {
		if err := warm.ScriptLoad(t.Context(), s.Text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_ = warm.Close()
	q.sent.Reset()
	q.start = time.Now()
	return q
}

// keep holds a lease for d, or until it ends. i is the call of a, or -1 for b.
func (q *queue) keep(le *lockcore.Lease, i int, d time.Duration) {
	q.begins(le, i)
	defer q.ends()
	select {
	case <-time.After(d):
	case <-le.Context().Done():
	}
}

// begins checks a new hold: there is no other one, its token is greater than all earlier ones, and
// no run was abandoned.
func (q *queue) begins(le *lockcore.Lease, i int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i >= 0 {
		q.served = append(q.served, i)
	}
	q.granted++
	if q.running {
		q.T.Errorf("call %d has the key while another call has it", i)
	}
	if le.Token() <= q.token {
		q.T.Errorf("token %d after %d", le.Token(), q.token)
	}
	if le.Abandoned() && !q.died {
		q.T.Error("Abandoned is true, but no run was abandoned")
	}
	q.token, q.running = le.Token(), true
}

func (q *queue) ends() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = false
}

// batches lets the calls of a follow each other with one hold in each batch, and b in between.
func (q *queue) batches(ctx context.Context) {
	q.faults.Delay(oneWay)
	q.hold = 5 * time.Millisecond
	theirs := q.Must(q.b.Acquire(q.T.Context(), "k", long))
	q.line(ctx, everybody, q.acquire)
	q.calls.Go(func() {
		if err := q.acquire(q.T.Context(), -1); err != nil {
			q.T.Errorf("b: %v", err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	_ = theirs.Release(q.T.Context())
}

// until returns when the number of grants has reached granted, or after 10 s.
func (q *queue) until(granted int) {
	for range 10000 {
		if q.count() >= granted {
			return
		}
		time.Sleep(oneWay)
	}
}

func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.granted
}

// whenLate names the moments at which a held rotation arrives. Then the next request of the process
// has the key, or another process has it, or no call waits for it.
var whenLate = []string{"granted", "held by another", "given up"}

// A rotation is lost, cut or arrives late. That delays the calls by a second or two. A key never
// has two holders, no call loses its place, and the key does not stay held.
// Shows: L12
func TestRotateFaults(t *testing.T) {
	testlevel.InMemory(t)
	hits := 0
	for kind, plant := range faultKinds {
		for n := 1; ; n++ {
			struck := false
			for _, late := range whenLate {
				if kind != "held up" && late == "held by another" {
					continue
				}
				t.Run(fmt.Sprintf("%s %d/%s", kind, n, late), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						q := newQueue(t)
						q.bound = 1100 * time.Millisecond // until the call detects that there is no reply
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						f := plant(q.faults, faulty.Nth(n, faulty.Script("rotate")))
						q.batches(ctx)
						select {
						case <-f.Struck():
							struck = true
						case <-time.After(time.Minute):
							return
						}
						switch late {
						case "given up":
							time.Sleep(oneWay / 2)
							q.end(cancel)
						case "granted":
							q.until(q.count() + 1)
							f.Deliver()
						}
						q.calls.Wait()
						if d := time.Since(q.start); d > 5*time.Second {
							t.Errorf("the calls took %v", d)
						}
						time.Sleep(6 * time.Second) // until the withdrawals in the background have ended
						switch {
						case kind != "held up":
						case late == "held by another":
							(&story{world: q.world, a: q.a, b: q.b, faults: q.faults}).late(f)
						default:
							f.Deliver()
						}
						q.settled(event.KindExclusive)
					})
				})
			}
			if !struck {
				break
			}
			hits++
		}
	}
	if hits < 3*len(faultKinds) {
		t.Errorf("only %d faults happened", hits)
	}
}

// A second copy of a rotation changes nothing, whenever it arrives. The first tested moment is
// after the arrival of the original. An earlier duplicate would have to overtake the original,
// which TCP rules out.
// Shows: L12
func TestRotateTwice(t *testing.T) {
	testlevel.InMemory(t)
	for n := 1; n <= inLine-1; n++ {
		for after := oneWay + time.Microsecond; after < 40*time.Millisecond; after += oneWay / 2 * time.Duration(stride(t)) {
			t.Run(fmt.Sprintf("%d/%v", n, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue(t)
					copied := make(chan []any, 1)
					seen := 0
					q.faults.Hold(func(r faulty.Request) bool {
						if r.Script == "rotate" {
							if seen++; seen == n {
								args := []any{r.Name}
								for _, a := range r.Args {
									args = append(args, a)
								}
								copied <- args
							}
						}
						return false
					})
					q.batches(t.Context())
					args := <-copied
					time.Sleep(after)
					if err := q.Redis.Do(t.Context(), args...).Err(); err != nil {
						t.Error(err)
					}
					q.calls.Wait()
					if d := time.Since(q.start); d > 100*time.Millisecond {
						t.Errorf("the calls took %v", d)
					}
					q.settled(event.KindExclusive)
				})
			})
		}
	}
}

// A process dies at any step of its batches. The other process waits for at most a lease and 2.5 s.
// Its tokens are greater than all tokens of the dead process, also than those used after its death.
// Shows: W10
func TestDieInBatch(t *testing.T) {
	testlevel.InMemory(t)
	for name, die := range map[string]func(*faulty.Network){
		"cut off":      (*faulty.Network).Down,
		"silent":       (*faulty.Network).Silence,
		"replies lost": (*faulty.Network).SilenceReplies,
	} {
		n := 1
		for struck := true; struck; n += stride(t) {
			t.Run(fmt.Sprintf("%s/packet %d", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					q.hold = 5 * time.Millisecond
					theirs := q.Must(q.b.Acquire(t.Context(), "k", long))
					q.line(ctx, everybody, func(ctx context.Context, i int) error {
						if i < inLine-1 {
							return q.acquire(ctx, i)
						}
						le, err := q.a.Acquire(ctx, "k", long)
						if err == nil {
							q.keep(le, i, 6*time.Second)
							_ = le.Release(ctx)
						}
						return err
					})
					time.Sleep(20 * time.Millisecond) // until the subscription is open, because a dial that hangs would stop the time of the bubble
					q.cancelAt(n, oneWay/2, func() {
						q.mu.Lock()
						q.died = true
						q.mu.Unlock()
						die(q.faults)
					})
					_ = theirs.Release(t.Context())
					for range 2 {
						asked := time.Now()
						if err := q.acquire(t.Context(), -1); err != nil {
							t.Errorf("acquire of the other process: %v", err)
						}
						q.mu.Lock()
						if d := min(time.Since(asked), time.Since(q.ended)); q.died && d > 7500*time.Millisecond {
							t.Errorf("the other process got the key %v after the death", d)
						}
						q.mu.Unlock()
						time.Sleep(7500 * time.Millisecond)
					}
					q.bound = 1100 * time.Millisecond // until the call detects that there is no reply
					q.end(cancel)
					q.calls.Wait()
					struck = q.reached(n)
				})
			})
		}
		if n < 15 {
			t.Errorf("only %d steps with a death", n)
		}
	}
}
