package lockcore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// shielded calls the Observer on a goroutine that no caller of the Locker owns: a panic that passed on would end the process.
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

// observerPanicked counts a panic and reports the first one: to the log with its stack, and as Misconfigured to all Observers.
func (l *Locker) observerPanicked(v any) {
	if l.panics.Add(1) > 1 {
		return
	}
	problem := fmt.Sprintf("the Observer panicked: %v", v)
	slog.Error("lockcore: "+problem+"; later panics are only counted", "stack", string(debug.Stack()))
	l.shielded(func() { l.Report(context.WithoutCancel(l.base), Misconfigured{Problem: problem}) })
}

// traceparent is what the Observer returns for ctx, or "" if it panics.
func (l *Locker) traceparent(ctx context.Context) (tp string) {
	l.shielded(func() { tp = l.obs.Traceparent(ctx) })
	return tp
}
