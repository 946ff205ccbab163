package asynqmw_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/tracing/asynqtrace"
)

// chain wraps h in middlewares. The first one is the outermost, as in (*asynq.ServeMux).Use.
func chain(h asynq.Handler, mws ...asynq.MiddlewareFunc) asynq.Handler {
	for _, mw := range slices.Backward(mws) {
		h = mw(h)
	}
	return h
}

// recovered returns an error for a panic.
func recovered(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return next.ProcessTask(ctx, t)
	})
}

// limited gives a handler d of time.
func limited(d time.Duration) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			return next.ProcessTask(ctx, t)
		})
	}
}

// All middlewares in the recommended order. The panic passes through the guard before it is
// recovered. The guard's span is below the span of the delivery. The handler has its full timeout,
// after any time in the wait queue.
func TestOrder(t *testing.T) {
	inBubble(t, func(w *world) {
		spans := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		observer, err := tracing.New(tracing.Options{TracerProvider: tp})
		if err != nil {
			w.Fatal(err)
		}
		locks, err := lockcore.New(w.rdb, lockcore.Options{Observer: observer, NoGroups: true})
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = locks.Close(context.Background()) }()
		once := asynqmw.Once(locks, byPayload, asynqmw.OnceOptions{Mode: guard.AtMostOnce})
		alone := asynqmw.Exclusive(locks, byPayload, asynqmw.ExclusiveOptions{})
		traced := asynqtrace.Middleware(asynqtrace.Options{TracerProvider: tp})
		var left time.Duration
		h := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			panic("boom")
		})
		lease := w.hold("test:7")
		time.AfterFunc(1500*time.Millisecond, func() { _ = lease.Release(context.Background()) })
		err = chain(h, recovered, traced, alone, once, limited(time.Second)).ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
		if err == nil || err.Error() != "panic: boom" {
			w.Errorf("error %v, want the panic", err)
		}
		if left != time.Second {
			w.Errorf("the handler had %v left of its second", left)
		}
		if held, err := locks.Inspect(w.Context(), event.KindOnce, "charge/test:7"); err != nil || held.State != lockcore.StateAbandoned {
			w.Errorf("after the panic the key is %v, %v; want abandoned: the outcome of the run is unknown", held.State, err)
		}
		below := map[string]string{}
		names := map[string]string{}
		for _, s := range spans.GetSpans() {
			names[s.SpanContext.SpanID().String()] = s.Name
		}
		for _, s := range spans.GetSpans() {
			below[s.Name] = names[s.Parent.SpanID().String()]
		}
		for span, want := range map[string]string{"process charge": "", "exclusive test": "process charge", "once test": "exclusive test", "acquire": "exclusive test"} {
			if got, ok := below[span]; !ok || got != want {
				w.Errorf("span %q is below %q, want %q", span, got, want)
			}
		}
	})
}

// A recover inside the guard, with AtMostOnce: a panic with an unknown outcome is recorded as a
// failure, and the key is done.
func TestOrderRecoverInside_incorrect(t *testing.T) {
	inBubble(t, func(w *world) {
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: guard.AtMostOnce})
		h := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("boom") })
		_ = chain(h, once, recovered).ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
		if held, err := w.locks.Inspect(w.Context(), event.KindOnce, "charge/test:7"); err != nil || held.State != lockcore.StateDone {
			w.Errorf("the key is %v, %v; this test shows that it is done", held.State, err)
		}
	})
}

// A timeout outside of the guard: the time in the wait queue is taken from the handler's time.
func TestOrderTimeoutOutside_incorrect(t *testing.T) {
	inBubble(t, func(w *world) {
		var left time.Duration
		h := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		})
		lease := w.hold("test:7")
		time.AfterFunc(1500*time.Millisecond, func() { _ = lease.Release(context.Background()) })
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{})
		if err := chain(h, limited(3*time.Second), alone).ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7"))); err != nil {
			w.Error(err)
		}
		if left > 1500*time.Millisecond {
			w.Errorf("%v left; this test shows that the wait reduces the handler's time", left)
		}
	})
}

// A timeout returns before its handler does, like http.TimeoutHandler. Inside the guard this
// releases the key while the handler runs. Outside, the guard still waits for the handler and keeps
// the key.
func TestOrderTimeoutThatGivesUp(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, inside := range []bool{true, false} {
			var g gauge
			h := g.handler(func(context.Context, int, *asynq.Task) error {
				stubborn(time.Second)
				return nil
			})
			mws := []asynq.MiddlewareFunc{givingUp, asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: noWait})}
			if inside {
				slices.Reverse(mws)
			}
			for range 2 {
				_ = chain(h, mws...).ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
			}
			if _, most := g.counts(); (most == 2) != inside {
				w.Errorf("inside %v: %d at once", inside, most)
			}
			<-time.After(time.Second)
		}
	})
}

// givingUp returns after 100 ms, also if the handler has not returned.
func givingUp(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		done := make(chan error, 1)
		go func() { done <- next.ProcessTask(ctx, t) }()
		select {
		case err := <-done:
			return err
		case <-time.After(100 * time.Millisecond):
			return context.DeadlineExceeded
		}
	})
}
