package rows_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// side is one of the implementations that are compared: two Lockers, of which the second listens.
type side struct {
	lockers [2]backend.Backend
	mu      sync.Mutex
	heard   []backend.Notification
}

// The backend gives the same replies and notifications as package memory to the same requests, with the
// plain statements and by the rules alone.
func TestDifferential(t *testing.T) {
	for seed := range uint64(testlevel.Pick(t, 10, 60, 400)) {
		synctest.Test(t, func(t *testing.T) { differ(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func differ(t *testing.T, seed uint64) {
	t.Helper()
	space, err := memory.NewSpace(1 << 40)
	if err != nil {
		t.Fatal(err)
	}
	plain, ruled := newTable(), newTable()
	ruled.ruleOnly, ruled.conflicts = true, true
	sides := []*side{{}, {}, {}}
	for i, locker := range []string{"A", "B"} {
		m, err := memory.New(memory.Options{Options: backend.Options{Locker: locker}, Space: space})
		if err != nil {
			t.Fatal(err)
		}
		sides[0].lockers[i], sides[1].lockers[i], sides[2].lockers[i] = m, plain.backend(locker), ruled.backend(locker)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, s := range sides {
		wg.Go(func() {
			s.lockers[1].Listen(ctx, func(n backend.Notification) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.heard = append(s.heard, n)
			})
		})
	}
	defer func() {
		cancel()
		wg.Wait()
		for _, s := range sides {
			s.lockers[0].Close()
			s.lockers[1].Close()
		}
	}()
	d := &difference{T: t, Rand: rand.New(rand.NewPCG(seed, 2)), sides: sides}
	for i := range 2 {
		d.keys = append(d.keys, d.sides[0].lockers[0].Key(backend.KindExclusive, fmt.Sprint("k", i)), d.sides[0].lockers[0].Key(backend.KindOnce, fmt.Sprint("k", i)))
		for k := range d.keys {
			d.keys[k].Stored = sides[1].lockers[0].Key(d.keys[k].Kind, d.keys[k].Name).Stored // as memory names them too, but for the queue
		}
	}
	for range 300 {
		time.Sleep(one(d, time.Millisecond, time.Millisecond, time.Millisecond, 10*time.Millisecond, 10*time.Millisecond, 600*time.Millisecond, 2*time.Second, 31*time.Second, 61*time.Second, 3*time.Hour))
		d.operation()
		if synctest.Wait(); t.Failed() {
			t.Logf("the last operations:\n%s", d.log)
			return
		}
	}
}

type difference struct {
	*testing.T
	*rand.Rand
	sides []*side
	keys  []backend.Key
	sent  []sent
	log   []string
	made  int
}

// sent is a request that was sent, and the grant of each side.
type sent struct {
	backend.AcquireRequest
	by     int
	grants [3]backend.AcquireReply
}

func one[T any](d *difference, from ...T) T { return from[d.IntN(len(from))] }

func (d *difference) chance(percent int) bool { return d.IntN(100) < percent }

// same runs an operation on each side, and compares the replies.
func (d *difference) same(what string, by int, do func(i int, b backend.Backend) any) {
	d.Helper()
	var replies []any
	for i, s := range d.sides {
		replies = append(replies, do(i, s.lockers[by]))
	}
	synctest.Wait()
	text := fmt.Sprintf("%s by %d: %+v\n", what, by, replies[0])
	d.log = append(d.log[max(0, len(d.log)-20):], text)
	for i, s := range d.sides {
		if got, ok := replies[i].(backend.Status); ok { // a busy reply does not unfold a plain hold, which adds 1 ms
			if want, _ := replies[0].(backend.Status); (got.KeepLeft - want.KeepLeft).Abs() <= time.Millisecond {
				got.KeepLeft = want.KeepLeft
				replies[i] = got
			}
		}
		if !reflect.DeepEqual(replies[i], replies[0]) {
			d.Errorf("%s: side %d replies\n%+v, memory\n%+v", what, i, replies[i], replies[0])
		}
		s.mu.Lock()
		if !slices.Equal(s.heard, d.sides[0].heard) {
			d.Errorf("%s: side %d gets %+v, memory %+v", what, i, s.heard, d.sides[0].heard)
		}
		s.mu.Unlock()
	}
	for _, s := range d.sides {
		s.mu.Lock()
		s.heard = nil
		s.mu.Unlock()
	}
}

// result is a reply with its error. The text of an error may differ.
func result(reply any, err error) any { return fmt.Sprintf("%+v %t", reply, err != nil) }

func (d *difference) operation() {
	key := &d.keys[d.IntN(len(d.keys))]
	if len(d.sent) == 0 || d.chance(35) {
		d.acquire(key)
		return
	}
	r := &d.sent[len(d.sent)-1-d.IntN(min(len(d.sent), 6))]
	key, used := r.Key, int64(d.IntN(512))
	token := func(i int) int64 { return r.grants[i].Token + used }
	lease := one(d, time.Second, 30*time.Second)
	switch d.IntN(16) {
	case 0:
		again := r.AcquireRequest
		again.First = false
		d.same("acquire again", r.by, func(_ int, b backend.Backend) any { return acquired(b.Acquire(d.Context(), again)) })
	case 1, 2:
		handed := d.chance(50) && r.Share.Alone()
		d.same("renew", r.by, func(i int, b backend.Backend) any {
			q := backend.RenewRequest{Key: key, ID: r.ID, Lease: lease, Retention: time.Hour, Share: r.Share}
			if handed {
				q.Token, q.Holder = token(i), "next"
			}
			return result(b.Renew(d.Context(), []backend.RenewRequest{q})[0], nil)
		})
	case 3, 4, 5:
		q := backend.ReleaseRequest{Key: key, ID: r.ID, Retention: time.Minute, Share: r.Share, Repeated: d.chance(20)}
		if q.Abandon = r.Share.Alone() && d.chance(20); !q.Abandon && d.chance(20) {
			q.CoolUntil = time.Now().Add(time.Second)
		}
		if r.Share.Alone() && key.Kind == backend.KindExclusive && d.chance(20) {
			next := r.AcquireRequest
			d.made++
			next.ID, next.First, next.Share = fmt.Sprintf("N%025d", d.made), false, backend.Share{}
			q.Next, q.CoolUntil = &next, time.Time{}
		}
		d.same("release", r.by, func(i int, b backend.Backend) any {
			q := q
			q.Token, q.Plain = token(i), r.grants[i].Plain
			reply, err := b.Release(d.Context(), q)
			reply.Next.Sent = time.Time{}
			return result(reply, err)
		})
	case 6, 7:
		if key.Kind == backend.KindOnce {
			repeated, record, keep := d.chance(20), make([]byte, one(d, 0, 10, 3000)), one(d, time.Second, time.Minute, time.Hour)
			d.same("complete", r.by, func(i int, b backend.Backend) any {
				return result(b.Complete(d.Context(), backend.CompleteRequest{Key: key, ID: r.ID, Token: token(i), Record: record, Keep: keep, Repeated: repeated, Plain: r.grants[i].Plain}))
			})
		}
	case 8:
		repeated := d.chance(30)
		d.same("withdraw", r.by, func(_ int, b backend.Backend) any {
			b.Withdraw(backend.WithdrawRequest{Key: key, ID: r.ID, Retention: time.Minute, Granted: true, Repeated: repeated, Share: r.Share})
			synctest.Wait()
			return nil
		})
	case 9:
		d.made++
		id := fmt.Sprintf("A%025d", d.made)
		d.same("adopt", 1-r.by, func(_ int, b backend.Backend) any {
			reply, err := b.Adopt(d.Context(), backend.AdoptRequest{Key: key, From: r.ID, ID: id, Holder: "adopted", Lease: lease, Retention: time.Hour})
			reply.Sent = time.Time{}
			return result(reply, err)
		})
	case 10:
		d.same("clear", 0, func(_ int, b backend.Backend) any {
			return result(b.Clear(d.Context(), backend.ClearRequest{Key: key}))
		})
	case 11:
		d.same("revoke", 0, func(_ int, b backend.Backend) any {
			return result(b.Revoke(d.Context(), backend.RevokeRequest{Key: key}))
		})
	case 12:
		entry := fmt.Sprint("q/", d.IntN(3))
		d.same("park", r.by, func(_ int, b backend.Backend) any {
			return result(b.Park(d.Context(), backend.ParkRequest{Key: key, Entry: entry, Most: 2, Keep: time.Hour}))
		})
		d.same("unpark", r.by, func(_ int, b backend.Backend) any {
			return result(b.Unpark(d.Context(), backend.UnparkRequest{Key: key, Remove: []string{entry}, Woken: 1, Prefix: "q/"}))
		})
	case 13:
		if key.Kind == backend.KindExclusive {
			entry, number := fmt.Sprint("q/", d.IntN(3)), time.Now().UnixMicro()-int64(d.IntN(1e6))
			op := one(d, backend.TriggerNote, backend.TriggerDone, backend.TriggerDrop, backend.TriggerRead)
			d.same("order", r.by, func(_ int, b backend.Backend) any {
				return result(b.Order(d.Context(), backend.TriggerRequest{Key: key, Op: op, Entry: entry, Number: number, Fresh: true, Ends: true, Keep: time.Hour, Most: 10}))
			})
		}
	case 14:
		if key.Kind == backend.KindExclusive {
			pause, rate := one(d, 0, time.Second, time.Minute), backend.Rate{N: 2, Per: time.Second, Burst: 2, Cost: 1}
			d.same("pause", 0, func(_ int, b backend.Backend) any { return result(nil, b.Pause(d.Context(), key, pause, "reason")) })
			d.same("restrict", 0, func(_ int, b backend.Backend) any {
				return result(nil, b.Restrict(d.Context(), key, backend.Restriction{Limit: 2, For: pause, Reason: "reason"}))
			})
			d.same("spend", 0, func(_ int, b backend.Backend) any { return result(nil, b.Spend(d.Context(), key, rate)) })
		}
	}
	d.same("inspect", 0, func(_ int, b backend.Backend) any {
		s, err := b.Inspect(d.Context(), key, backend.WholeRecord)
		if err != nil {
			return err.Error()
		}
		if len(s.Record) == 0 {
			s.Record = nil
		}
		return s
	})
}

func (d *difference) acquire(key *backend.Key) {
	d.made++
	r := sent{by: d.IntN(2), AcquireRequest: backend.AcquireRequest{
		Key: key, ID: fmt.Sprintf("R%025d", d.made), Holder: "holder", Lease: one(d, time.Second, 30*time.Second), Retention: one(d, time.Minute, time.Hour),
		Fingerprint: one(d, "", "", "f", "g"), AtMostOnce: d.chance(20), Queue: d.chance(50), First: d.chance(80), Timeout: backend.CallTimeout,
	}}
	if key.Kind == backend.KindExclusive {
		r.Fingerprint = ""
		switch d.IntN(6) {
		case 0:
			r.Share = backend.Share{Limit: 3, Weight: 1 + d.IntN(2)}
		case 1:
			r.Share, r.Calls = backend.Share{Rate: backend.Rate{N: 2, Per: time.Second, Burst: 2, Cost: 1}}, 2
		}
	}
	d.same("acquire", r.by, func(i int, b backend.Backend) any {
		reply, err := b.Acquire(d.Context(), r.AcquireRequest)
		r.grants[i] = reply
		return acquired(reply, err)
	})
	if !r.Share.Throttled() {
		d.sent = append(d.sent, r)
	}
}

// acquired returns a reply without what may differ. A grant of a row that still has a token may be plain.
func acquired(reply backend.AcquireReply, err error) any {
	reply.Sent, reply.Plain = time.Time{}, false
	return result(reply, err)
}
