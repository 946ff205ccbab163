package signals_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	lease    = 3 * time.Second
	patience = 40 * time.Second // a longer wait means that something is stuck
)

// task is the task of a worker.
type task struct {
	Addr, Key string
	Role      string // exclusive, once, batch, line, pause
	Point     point  // where
	Nth       int    // of the commands that pass there
	Stop      bool   // it stops, else it dies
}

// message is a line that a worker writes: a step that it reached, or a call of the register, which
// is answered.
type message struct {
	Op       string // see below
	At       int64  // ns of the machine's clock
	Token    int64  `json:",omitempty"`
	Value    int64  `json:",omitempty"`
	Text     string `json:",omitempty"`
	TookOver bool   `json:",omitempty"`
}

// The kinds of messages.
const (
	opBegan    = "began"    // the handler's first act
	opPoint    = "point"    // the worker is at its point, and stops or dies now
	opRead     = "read"     // the register
	opWrite    = "write"    // to the register; the reply says whether it was accepted
	opWaits    = "waits"    // it is a waiter
	opCanceled = "canceled" // the ctx of the hold in which it was stopped; Text says why
	opDone     = "done"     // it ends now
	opFault    = "fault"
)

// worker is the process.
type worker struct {
	task
	locks *lockcore.Locker
	in    *bufio.Scanner
	mu    sync.Mutex // of a message and its reply
	fired atomic.Bool
}

func work(t task, in *bufio.Scanner) error {
	w := &worker{task: t, in: in}
	wire := &tripwire{point: w.Point, nth: max(w.Nth, 1), key: w.Key, act: w.act}
	o := &redis.Options{Addr: w.Addr}
	o.Dialer = wire.dial(redis.NewDialer(o))
	rdb := redis.NewClient(o)
	locks, err := lockcore.New(rdb, lockcore.Options{Observer: hears{w}, NoGroups: true, Terms: lockcore.Terms{Lease: lease, Wait: patience}})
	if err != nil {
		return err
	}
	w.locks = locks
	switch w.Role {
	case "exclusive", "line":
		w.fail(w.exclusive())
	case "once":
		_, err := guard.OnceValue(context.Background(), locks, w.Key, onceOptions, w.payout)
		w.fail(err)
	case "batch":
		w.batch()
	case "pause":
		w.pause()
	}
	w.fail(locks.Close(context.Background()))
	w.fail(rdb.Close())
	w.say(message{Op: opDone})
	return nil
}

func (w *worker) say(m message) {
	m.At = chaos.Now()
	chaos.WriteLine(os.Stdout, m)
}

// ask is say with a reply.
func (w *worker) ask(m message) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(m)
	if !w.in.Scan() {
		panic("the test is gone")
	}
	return w.in.Text()
}

func (w *worker) fail(err error) {
	if err != nil {
		w.say(message{Op: opFault, Text: err.Error()})
	}
}

// act kills the process, or stops it until the test resumes it. It does so once.
func (w *worker) act() {
	if !w.fired.CompareAndSwap(false, true) {
		return
	}
	sig := syscall.SIGKILL
	if w.Stop {
		sig = syscall.SIGSTOP
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(message{Op: opPoint})
	_ = syscall.Kill(os.Getpid(), sig)
	if !w.in.Scan() { // the signal may take a moment to reach this thread; the test answers before it resumes the process
		panic("the test is gone")
	}
}

// reached acts if p is the point.
func (w *worker) reached(p point) {
	if w.Point == p {
		w.act()
	}
}

// exclusive is one hold. If the named point of the worker is in a renewal, the hold lasts until its
// ctx ends.
func (w *worker) exclusive() error {
	return guard.Exclusive(context.Background(), w.locks, w.Key, lockcore.Terms{}, func(ctx context.Context) error {
		token, _ := guard.Token(ctx, w.Key)
		w.say(message{Op: opBegan, Token: token})
		w.reached("before the effect")
		w.fail(w.increment(token))
		w.reached("after the effect")
		if sent, answered := w.Point.at("renew"); sent || answered {
			<-ctx.Done()
		}
		return nil
	})
}

// increment reads the register, and writes a value that is one greater.
func (w *worker) increment(token int64) error {
	if said := w.ask(message{Op: opWrite, Token: token, Value: w.number() + 1}); said != "taken" {
		return fmt.Errorf("a write was %s", said)
	}
	return nil
}

// number returns the value of the register.
func (w *worker) number() int64 {
	n, err := strconv.ParseInt(w.ask(message{Op: opRead}), 10, 64)
	w.fail(err)
	return n
}

var onceOptions = guard.OnceOptions{Terms: lockcore.Terms{Lease: lease, Wait: patience}, Keep: time.Minute}

// payout is a run of a once key.
func (w *worker) payout(ctx context.Context) (string, error) {
	_, took := guard.Attempt(ctx, w.Key)
	w.say(message{Op: opBegan, TookOver: took})
	w.reached("before the effect")
	w.ask(message{Op: opRead})
	w.reached("after the effect")
	return "by the worker", nil
}

// batch works with many goroutines, so that the key goes from one to the next without Redis.
func (w *worker) batch() {
	const goroutines, turns = 8, 2000
	var wg sync.WaitGroup
	var last atomic.Int64
	var handed atomic.Int32
	for range goroutines {
		wg.Go(func() {
			for range turns {
				err := guard.Exclusive(context.Background(), w.locks, w.Key, lockcore.Terms{}, func(ctx context.Context) error {
					token, _ := guard.Token(ctx, w.Key)
					if last.Swap(token) == token-1 && handed.Add(1) == 40 {
						w.fail(w.increment(token))
						w.reached("in a batch")
					}
					return nil
				})
				if err != nil {
					w.fail(err)
					return
				}
			}
		})
	}
	w.say(message{Op: opBegan})
	wg.Wait()
}

// hears is an Observer that notifies the test when the worker waits.
type hears struct{ w *worker }

func (hears) Start(ctx context.Context, _ lockcore.Acquisition) context.Context { return ctx }
func (hears) Traceparent(context.Context) string                                { return "" }

func (h hears) Event(_ context.Context, e lockcore.Event) {
	if _, ok := e.(lockcore.Waiting); ok && h.w.Role != "batch" {
		h.w.say(message{Op: opWaits})
	}
}
