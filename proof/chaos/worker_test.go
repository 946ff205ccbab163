package chaos_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend/quorum"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	stuck = 20 * time.Second       // a call that has not returned so long after the end of the load is stuck
	usual = 500 * time.Millisecond // longest call that is not worth a line
	beat  = 20 * time.Millisecond  // interval at which a longer hold reports that it is valid
)

// task is what a worker does until its standard input ends.
type task struct {
	Name     string
	N, Of    int      // the worker is number N of Of
	Client   string   // of clients
	Addrs    []string // that the client gets
	Acks     int      // of replicas
	Lease    time.Duration
	Wait     time.Duration
	NoGroups bool
	Load     load
	Counter  string // address of the counting server
}

// load is the number of goroutines that make each kind of call.
type load struct {
	Hot    int    // exclusive holds of the key "hot", as short as possible
	Any    int    // exclusive holds of a few keys, some with other terms, some canceled
	Long   int    // exclusive holds for three leases, of keys that a worker shares with the two next to it
	Fresh  int    // exclusive holds for half a lease of a key that all want at the same time; every two leases it is a new one
	Shares int    // shared, limited and exclusive holds of a few keys
	Once   int    // runs of once keys
	Calm   bool   // the calls of Any all have the same terms, and pauses between them
	Rates  int    // calls with a rate, which a server of the test counts
	Listen string // not "": HTTP requests for once keys arrive here
	Queue  string // not "": address of asynq's Redis, whose tasks run under Latest
}

// keys is the number of keys of load.Any.
const keys = 4

// fresh is the prefix of the keys of load.Fresh.
const fresh = "fresh"

func keyName(i int) string { return fmt.Sprint("k", i) }

// worker is the process.
type worker struct {
	task
	tripwire
	clients []io.Closer
	locks   *lockcore.Locker
	ids     atomic.Int64
	counter net.Conn        // to the counting server
	over    context.Context //nolint:containedctx // ends when no more calls are to begin

	mu     sync.Mutex
	counts map[string]int
}

func work(t task, in *bufio.Scanner) (err error) {
	logging.Disable() // the network fails on purpose
	w := &worker{task: t, counts: map[string]int{}}
	w.w, w.goOn = w, make(chan struct{}, 1)
	w.locks, w.clients, err = connect(t, &w.tripwire, lockcore.Options{
		Observer: observer{w}, NoGroups: t.NoGroups, ReplicaAcks: lockcore.ReplicaAcks{N: t.Acks}, Terms: lockcore.Terms{Lease: t.Lease, Wait: t.Wait},
	})
	if err != nil {
		return err
	}
	over, end := context.WithCancel(context.Background())
	w.over = over
	calls, cancel := context.WithCancelCause(context.Background())
	heard := make(chan struct{})
	go func() { // ends with the standard input
		defer close(heard)
		defer end()
		w.hear(in)
	}()
	context.AfterFunc(over, func() { time.AfterFunc(stuck, func() { cancel(errStuck) }) })
	if t.Counter != "" {
		if w.counter, err = (&net.Dialer{}).DialContext(over, "tcp", t.Counter); err != nil {
			return err
		}
		defer w.counter.Close()
	}
	w.write(line{Op: opReady})
	w.call(calls)
	<-heard
	closing, done := context.WithTimeout(context.Background(), stuck)
	defer done()
	w.fail("close", w.locks.Close(closing))
	for _, c := range w.clients {
		w.fail("close", c.Close())
	}
	w.fail("goroutines left", goleak.Find(redistest.PoolProbes()))
	if q, ok := access.Of(w.locks).Backend.(*quorum.Backend); ok {
		granted, raised := q.Rounds()
		w.counts["granted"], w.counts["raised"] = int(granted), int(raised)
	}
	w.write(line{Op: opReport, Counts: w.counts})
	return nil
}

var errStuck = errors.New("stuck")

// call makes all calls of the load until its end, and returns when they have returned. calls is
// their ctx.
func (w *worker) call(calls context.Context) {
	var wg sync.WaitGroup
	for _, kind := range []struct {
		n    int
		call func(context.Context)
	}{
		{w.Load.Hot, func(ctx context.Context) { w.exclusive(ctx, "hot", lockcore.Terms{}, 0) }},
		{w.Load.Any, w.any},
		{w.Load.Long, func(ctx context.Context) {
			key := fmt.Sprint("long", (w.N+rand.IntN(2))%w.Of)
			w.exclusive(ctx, key, lockcore.Terms{Wait: lockcore.Forever}, 3*w.Lease)
		}},
		{w.Load.Fresh, w.fresh},
		{w.Load.Shares, w.share},
		{w.Load.Rates, w.throttled},
		{w.Load.Once, w.once},
	} {
		for range kind.n {
			wg.Go(func() {
				for w.over.Err() == nil {
					kind.call(calls)
				}
			})
		}
	}
	if w.Load.Shares > 0 {
		w.keepPermits(&wg)
	}
	if w.Load.Listen != "" {
		wg.Go(func() { w.fail("serve", w.serve(w.over)) })
	}
	if w.Load.Queue != "" {
		wg.Go(func() { w.fail("latest", w.latest(w.over)) })
	}
	wg.Wait()
}

// any makes an exclusive call. Unless the load is calm, some have other terms, and some waits are
// canceled.
func (w *worker) any(ctx context.Context) {
	key, terms, stay := keyName(rand.IntN(keys)), lockcore.Terms{}, rand.N(2*time.Millisecond)
	if rand.IntN(1000) == 0 {
		stay = w.Lease / 2
	}
	if w.Load.Calm {
		w.exclusive(ctx, key, terms, stay)
		time.Sleep(rand.N(5 * time.Millisecond))
		return
	}
	switch rand.IntN(40) {
	case 0, 1:
		terms.Wait = lockcore.NoWait
	case 2:
		terms.Lease = w.Lease / 2
	case 3:
		ctx = access.WithFixed(ctx)
	case 4:
		terms.MaxHold = time.Minute
	case 5, 6, 7, 8:
		var cancel context.CancelFunc
		ctx, cancel = sometimesCanceled(ctx)
		defer cancel()
	}
	w.exclusive(ctx, key, terms, stay)
}

var errCanceled = errors.New("canceled as planned")

func sometimesCanceled(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, rand.N(20*time.Millisecond), errCanceled)
}

// fresh makes a call for the key of this time, and waits until it is time for the next key.
func (w *worker) fresh(ctx context.Context) {
	now, each := time.Now().UnixNano(), int64(2*w.Lease)
	w.exclusive(ctx, fmt.Sprint(fresh, now/each), lockcore.Terms{Wait: w.Lease}, w.Lease/2)
	select {
	case <-time.After(time.Until(time.Unix(0, (now/each+1)*each))):
	case <-w.over.Done():
	}
}

// exclusive acquires key and holds it for stay.
func (w *worker) exclusive(ctx context.Context, key string, terms lockcore.Terms, stay time.Duration) {
	c := newCall()
	c.end(ctx, w, terms, guard.Exclusive(ctx, w.locks, key, terms, func(ctx context.Context) error {
		defer c.enter()()
		w.hold(ctx, c, line{Key: key}, stay)
		return nil
	}))
}

// hold writes down a hold and does its work: it reads the register of the key, works, checks that
// it still has the key, and writes to the register. A hold that was lost writes too, as a process
// does that was stopped between its check and its write: the register has to refuse it.
func (w *worker) hold(ctx context.Context, c *call, l line, stay time.Duration) {
	l.At = time.Now().UnixNano() // before the check, so that a stop between the two is not a part of the hold
	h, ok := access.HoldOf(ctx, l.Key)
	if !ok {
		return
	}
	l.Op, l.ID, l.Token, l.Called = opHold, w.ids.Add(1), h.Token, c.began.UnixNano()
	w.write(l)
	w.reached(atBegun, l.Key)
	for end := time.Unix(0, l.At).Add(stay); ; {
		time.Sleep(min(beat, time.Until(end)))
		now := time.Now()
		_, ok := access.HoldOf(ctx, l.Key)
		if ok && now.Before(end) && w.over.Err() == nil {
			w.write(line{Op: opValid, ID: l.ID, Valid: now.UnixNano()})
			continue
		}
		w.reached(atWorking, l.Key) // after the check
		last := line{Op: opEffect, Key: l.Key, ID: l.ID, Limit: l.Limit}
		if ok {
			last.Valid = now.UnixNano()
		}
		w.write(last)
		w.reached(atEnded, l.Key)
		return
	}
}

// call is one call, for the time that it takes besides its handler.
type call struct {
	began  time.Time
	inside time.Duration
}

func newCall() *call { return &call{began: time.Now()} }

// enter is called when the handler begins, and its result when the handler ends.
func (c *call) enter() func() {
	entered := time.Now()
	return func() { c.inside = time.Since(entered) }
}

// end counts how a call ended. Each error that a user must expect has a name; which of them a
// scenario permits is in its rules.
func (c *call) end(ctx context.Context, w *worker, terms lockcore.Terms, err error) {
	w.count(outcome(ctx, terms, err))
	if err != nil && outcome(ctx, terms, err) == "" {
		w.fail("a call", err)
	}
	if took := time.Since(c.began) - c.inside; took > usual && cmp.Or(terms.Wait, w.Wait) != lockcore.Forever {
		w.write(line{Op: opSlow, Called: c.began.UnixNano(), Valid: int64(took), Text: fmt.Sprint(err)})
	}
}

func outcome(ctx context.Context, terms lockcore.Terms, err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(context.Cause(ctx), errStuck):
		return ""
	case errors.Is(context.Cause(ctx), errCanceled):
		return "canceled"
	case errors.Is(err, lockcore.ErrReplicaAcks):
		return "acks"
	case errors.Is(err, lockcore.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, lockcore.ErrLost):
		return "lost"
	case errors.Is(err, lockcore.ErrBusy) && terms.Wait == lockcore.NoWait:
		return "refused"
	case errors.Is(err, lockcore.ErrBusy):
		return "busy"
	}
	return ""
}

func (w *worker) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// observer counts what the calls do not see, writes down grants of once keys, and reaches points.
type observer struct{ w *worker }

func (observer) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (observer) Traceparent(context.Context) string                             { return "" }

func (o observer) Event(ctx context.Context, e event.Event) {
	key, once := ctx.Value(onceKey{}).(string)
	switch e := e.(type) {
	case event.Waiting:
		o.w.reached(atWaiting, key)
	case event.Granted:
		if e.Abandoned {
			o.w.count("abandoned")
		}
		if once {
			o.w.write(line{Op: opGranted, Key: key, Attempt: e.Attempt, TookOver: e.Abandoned})
		}
		o.w.reached(atGranted, key)
	case event.ServerFailed:
		o.w.count("server failed")
	case event.CompletionFailed:
		o.w.count("unrecorded")
	case event.BadRecord:
		o.w.fail("bad record", e.Err)
	}
}
