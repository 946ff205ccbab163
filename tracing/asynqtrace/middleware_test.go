package asynqtrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/tracing/asynqtrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// rig is a TracerProvider that keeps its spans in memory.
type rig struct {
	*sdktrace.TracerProvider
	spans *tracetest.InMemoryExporter
}

func newRig() rig {
	spans := tracetest.NewInMemoryExporter()
	return rig{sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), spans}
}

func (r rig) middleware() asynq.MiddlewareFunc {
	return asynqtrace.Middleware(asynqtrace.Options{TracerProvider: r})
}

// producer starts and ends a span, and returns its ctx.
func (r rig) producer(ctx context.Context) (context.Context, trace.SpanContext) {
	ctx, span := r.Tracer("test").Start(ctx, "producer")
	span.End()
	return ctx, span.SpanContext()
}

// deliver calls h with task under the middleware, and returns the span of the delivery.
func (r rig) deliver(t *testing.T, task *asynq.Task, h asynq.HandlerFunc) tracetest.SpanStub {
	t.Helper()
	r.spans.Reset()
	func() {
		defer func() { _ = recover() }()
		_ = r.middleware()(h).ProcessTask(t.Context(), task)
	}()
	got := r.spans.GetSpans()
	if len(got) != 1 {
		t.Fatalf("%d spans, want 1", len(got))
	}
	return got[0]
}

func nothing(context.Context, *asynq.Task) error { return nil }

// On a real asynq server the span of each delivery has a link to the span of the producer, and
// another trace. The context passes through Redis.
func TestTraceGoesThroughAsynq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Bubble(t).Client(t)
		r := newRig()
		ctx, from := r.producer(t.Context())
		r.spans.Reset()
		done := make(chan struct{})
		srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
			LogLevel: asynq.FatalLevel, Queues: map[string]int{"critical": 1},
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		})
		mux := asynq.NewServeMux()
		mux.Use(r.middleware())
		mux.HandleFunc("charge", func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n == 0 {
				return errors.New("secret text")
			}
			close(done)
			return nil
		})
		if err := srv.Start(mux); err != nil {
			t.Fatal(err)
		}
		task := asynqtrace.NewTask(ctx, "charge", []byte("secret payload"), asynq.Queue("critical"), asynq.TaskID("t1"))
		if _, err := asynq.NewClientFromRedisClient(rdb).EnqueueContext(ctx, task); err != nil {
			t.Fatal(err)
		}
		<-done
		srv.Shutdown()
		got := r.spans.GetSpans()
		if len(got) != 2 {
			t.Fatalf("%d spans, want one per delivery", len(got))
		}
		for i, s := range got {
			if s.Name != "process charge" || s.SpanKind != trace.SpanKindConsumer {
				t.Errorf("span %q of kind %v", s.Name, s.SpanKind)
			}
			if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID() != from.TraceID() || s.Links[0].SpanContext.SpanID() != from.SpanID() {
				t.Errorf("links %v, want one to the producer", s.Links)
			}
			if s.Parent.IsValid() || s.SpanContext.TraceID() == from.TraceID() {
				t.Error("the span is in the producer's trace")
			}
			want := attribute.NewSet(
				attribute.String("messaging.system", "asynq"), attribute.String("messaging.operation.name", "process"),
				attribute.String("messaging.operation.type", "process"), attribute.String("messaging.destination.name", "critical"),
				attribute.String("messaging.message.id", "t1"), attribute.String("asynq.task.type", "charge"), attribute.Int("asynq.task.retried", i),
			)
			if i == 0 {
				want = attribute.NewSet(append(want.ToSlice(), attribute.String("error.type", "_OTHER"))...)
			}
			if got := attribute.NewSet(s.Attributes...); !got.Equals(&want) {
				t.Errorf("attributes %v, want %v", s.Attributes, want.ToSlice())
			}
			if strings.Contains(fmt.Sprintf("%+v", s), "secret") {
				t.Error("payload or the text of an error is in the span")
			}
		}
	})
}

// The ctx of the handler has the span of the delivery, so that the spans of the handler are its
// children.
func TestHandlerIsBelowItsDelivery(t *testing.T) {
	r := newRig()
	var inner trace.SpanContext
	s := r.deliver(t, asynq.NewTask("charge", nil), func(ctx context.Context, _ *asynq.Task) error {
		inner = trace.SpanContextFromContext(ctx)
		return nil
	})
	if !inner.Equal(s.SpanContext) {
		t.Errorf("ctx has span %v, want %v", inner, s.SpanContext)
	}
}

// A result that is no error of the task does not change the status: a conflict that is retried, or
// a task that was dropped.
func TestStatus(t *testing.T) {
	busy := &lockcore.BusyError{Key: "account:42"}
	for name, tt := range map[string]struct {
		handler asynq.HandlerFunc
		class   string
	}{
		"nil":               {nothing, ""},
		"error":             {returns(fmt.Errorf("wrapped: %w", &time.ParseError{})), "*time.ParseError"},
		"timeout":           {returns(fmt.Errorf("wrapped: %w", context.DeadlineExceeded)), "timeout"},
		"canceled":          {returns(context.Canceled), "canceled"},
		"typed":             {returns(&lockcore.AbandonedError{}), "abandoned"},
		"busy":              {returns(fmt.Errorf("wrapped: %w", busy)), ""},
		"dropped":           {returns(fmt.Errorf("enough: %w", asynq.RevokeTask)), ""},
		"skipped":           {returns(fmt.Errorf("%w", asynq.SkipRetry)), "_OTHER"},
		"busy, but skipped": {returns(fmt.Errorf("%w: %w", busy, asynq.SkipRetry)), "busy"},
		"panic":             {func(context.Context, *asynq.Task) error { panic("secret") }, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			checkStatus(t, newRig().deliver(t, asynq.NewTask("charge", nil), tt.handler), tt.class)
		})
	}
}

// The same holds for the policies of asynqmw: only what asynq counts as a failure is an error.
func TestStatusOfPolicies(t *testing.T) {
	for busy, class := range map[asynqmw.ConflictPolicy]string{asynqmw.RetryLater: "", asynqmw.Skip: "", asynqmw.Drop: "", asynqmw.Fail: "busy"} {
		t.Run(busy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, err := lockcore.New(redistest.Bubble(t).Client(t), lockcore.Options{NoGroups: true})
				if err != nil {
					t.Fatal(err)
				}
				defer locks.Close(context.Background())
				lease, err := locks.Acquire(t.Context(), "type:charge", lockcore.Terms{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = lease.Release(context.Background()) }()
				alone := asynqmw.Exclusive(locks, asynqmw.ByType(), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}, Busy: busy})
				h := alone(asynq.HandlerFunc(nothing))
				checkStatus(t, newRig().deliver(t, asynq.NewTask("charge", nil), h.ProcessTask), class)
			})
		})
	}
}

func checkStatus(t *testing.T, s tracetest.SpanStub, class string) {
	t.Helper()
	set := attribute.NewSet(s.Attributes...)
	got, _ := set.Value("error.type")
	if isError := s.Status.Code == codes.Error; isError != (class != "") || got.AsString() != class {
		t.Errorf("status %v, error.type %q; want %q", s.Status, got.AsString(), class)
	}
	if len(s.Events) != 0 || s.Status.Description != "" {
		t.Errorf("events %v, description %q; want none", s.Events, s.Status.Description)
	}
}

// A panic of the handler passes through the middleware.
func TestPanicPassesOn(t *testing.T) {
	defer func() {
		if p := recover(); p != "boom" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = newRig().middleware()(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("boom") })).ProcessTask(t.Context(), asynq.NewTask("charge", nil))
}

// Without a TracerProvider the middleware uses the global one. It returns the error of the handler
// unchanged.
func TestDefaults(t *testing.T) {
	boom := errors.New("boom")
	h := asynqtrace.Middleware(asynqtrace.Options{})(returns(boom))
	if err := h.ProcessTask(t.Context(), asynq.NewTask("charge", nil)); err != boom { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
}

func returns(err error) asynq.HandlerFunc {
	return func(context.Context, *asynq.Task) error { return err }
}
