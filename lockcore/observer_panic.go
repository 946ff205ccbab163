package lockcore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// shielded calls the Observer on a goroutine of the Locker, where a panic would end the process.
func (l *Locker) shielded(call func()) {
	defer func() {
		if v := recover(); v != nil {
			l.observerPanicked(v)
		}
	}()
	call()
}

// ObserverPanics returns how many panics of the Observer the Locker has recovered.
func (l *Locker) ObserverPanics() int64 { return l.panics.Load() }

// observerPanicked counts a panic. It writes the first one with its stack to the log, and reports it as Misconfigured
// to all Observers.
func (l *Locker) observerPanicked(v any) {
	if l.panics.Add(1) > 1 {
		return
	}
	problem := fmt.Sprintf("the Observer panicked: %v", v)
	slog.Error("lockcore: "+problem+"; later panics are only counted", "stack", string(debug.Stack()))
	l.shielded(func() { l.Report(context.WithoutCancel(l.base), Misconfigured{Problem: problem}) })
}

// traceparent returns the Observer's traceparent for ctx, or "" if the Observer panics.
func (l *Locker) traceparent(ctx context.Context) (tp string) {
	l.shielded(func() { tp = l.observer.Traceparent(ctx) })
	return tp
}
