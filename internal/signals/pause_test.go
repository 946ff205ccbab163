package signals_test

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/lockcore"
)

// pause is the work of a worker that will be stopped: three holds. In each of them it reads the
// register, checks its ctx, and writes. A write that is refused belongs to a hold in which it was
// stopped.
func (w *worker) pause() {
	for range 3 {
		before := w.fired.Load()
		le, err := w.locks.Acquire(context.Background(), w.Key, lockcore.Terms{})
		if err != nil {
			w.fail(err)
			return
		}
		taken := w.hold(le)
		stopped := w.fired.Load() && !before
		if stopped {
			w.canceled(le)
		}
		if !taken && !stopped {
			w.fail(errors.New("a write was refused although the worker was not stopped"))
		}
		if err := le.Release(context.Background()); err != nil && w.fired.Load() == before {
			w.fail(err)
		}
	}
}

// hold writes once, or until the point is passed.
func (w *worker) hold(le *lockcore.Lease) (taken bool) {
	sent, answered := w.Point.at("renew")
	for waits := (sent || answered) && !w.fired.Load(); ; {
		value := w.number()
		if le.Context().Err() == nil {
			w.reached("after the check")
			if taken = w.ask(message{Op: opWrite, Token: le.Token(), Value: value + 1}) == "taken"; !taken {
				return false
			}
		}
		if !waits || w.fired.Load() || le.Context().Err() != nil {
			return true
		}
		time.Sleep(20 * time.Millisecond) // its work
	}
}

// canceled reports how the hold in which the worker was stopped ends.
func (w *worker) canceled(le *lockcore.Lease) {
	since := chaos.Now()
	select {
	case <-le.Context().Done():
		w.say(message{Op: opCanceled, Text: context.Cause(le.Context()).Error(), Value: time.Duration(chaos.Now() - since).Microseconds()})
	case <-time.After(100 * time.Millisecond): // it has not lost the lease
		w.say(message{Op: opCanceled})
	}
}
