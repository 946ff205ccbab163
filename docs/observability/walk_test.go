package observability_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

func connect(rdb redis.UniversalClient) (*lockcore.Locker, error) {
	observer, err := tracing.New(tracing.Options{}) // spans and metrics, to the global providers
	if err != nil {
		return nil, err
	}
	return lockcore.New(rdb, lockcore.Options{Observer: observer})
}

// try does not wait. If the key is busy it prints the holder.
func try(ctx context.Context, locks *lockcore.Locker, transfer func(context.Context) error) error {
	err := guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{Name: "account", Wait: lockcore.NoWait}, transfer)
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		fmt.Println("held by", busy.Holder.Task, "for", busy.HeldFor.Round(time.Second), "waiting processes:", busy.Queue)
		fmt.Printf("its span: %q\n", busy.Holder.Traceparent)
	}
	return err
}

func ask(ctx context.Context, locks *lockcore.Locker) error {
	holding, err := locks.Inspect(ctx, event.KindExclusive, "account:42")
	if err != nil {
		return err
	}
	fmt.Println(holding.State, "by", holding.Holder.Task, "for", holding.HeldFor.Round(time.Second))
	return nil
}

// Without a TracerProvider the error and Inspect have all fields of the holder except for the
// trace.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := connect(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	ctx := lockcore.WithTask(context.Background(), "job-7")
	_ = guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{Name: "account"}, func(ctx context.Context) error {
		_ = try(guard.Detach(ctx), locks, func(context.Context) error { return nil })
		return ask(ctx, locks)
	})
	// Output:
	// held by job-7 for 0s waiting processes: 0
	// its span: ""
	// held by job-7 for 0s
}

// seen has the data about a holder that two other calls can see.
type seen struct {
	busy    event.Holder // in the error of the call that timed out
	holding event.Holder // by Inspect, while the other call waits
	spans   map[string]tracetest.SpanStub
}

func walk(t *testing.T) (s seen) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	o, err := tracing.New(tracing.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))})
	if err != nil {
		t.Fatal(err)
	}
	m := redistest.Bubble(t)
	a, errA := lockcore.New(m.Client(t), lockcore.Options{Observer: o, NoGroups: true})
	b, errB := lockcore.New(m.Client(t), lockcore.Options{Observer: o, NoGroups: true})
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	err = guard.Exclusive(lockcore.WithTask(t.Context(), "job-7"), a, "account:42", lockcore.Terms{Name: "holder"}, func(context.Context) error {
		var busy *lockcore.BusyError
		err := guard.Exclusive(t.Context(), b, "account:42", lockcore.Terms{Name: "refused", Wait: time.Second}, nothing)
		if !errors.As(err, &busy) {
			t.Fatalf("not busy: %v", err)
		}
		go func() { // ends when the call has run
			waited <- guard.Exclusive(t.Context(), b, "account:42", lockcore.Terms{Name: "waiter", Wait: time.Minute}, nothing)
		}()
		time.Sleep(5 * time.Second)
		holding, err := b.Inspect(t.Context(), event.KindExclusive, "account:42")
		s.busy, s.holding = busy.Holder, holding.Holder
		return err
	})
	if err := errors.Join(err, <-waited, a.Close(t.Context()), b.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.spans = map[string]tracetest.SpanStub{}
	for _, span := range exporter.GetSpans() {
		s.spans[span.Name] = span
	}
	return s
}

// The holder's trace is found in three ways. They are the traceparent in the error of a refused
// call, the traceparent that Inspect returns while a call waits, and the links of both calls. The
// digest on the page is that of the key's spans.
func TestFromTheWaiterToTheHolder(t *testing.T) {
	var s seen
	synctest.Test(t, func(t *testing.T) { s = walk(t) })
	holder := s.spans["exclusive holder"].SpanContext.TraceID().String()
	for where, h := range map[string]event.Holder{"the error": s.busy, "Inspect": s.holding} {
		if parts := strings.Split(h.Traceparent, "-"); len(parts) != 4 || parts[1] != holder || h.Task != "job-7" {
			t.Errorf("%s leads to %+v, not to trace %s", where, h, holder)
		}
	}
	for _, name := range []string{"exclusive refused", "exclusive waiter", "acquire"} {
		links := s.spans[name].Links
		if len(links) != 1 || links[0].SpanContext.TraceID().String() != holder {
			t.Errorf("%s links to %v, not to trace %s", name, links, holder)
		}
	}
	digest := sha256.Sum256([]byte("account:42"))
	said := hex.EncodeToString(digest[:8])
	if on := attribute.NewSet(s.spans["exclusive waiter"].Attributes...); value(on, "holdfast.key.digest") != said {
		t.Errorf("the digest on the span is %s, by the command of the page %s", value(on, "holdfast.key.digest"), said)
	}
	if !strings.Contains(read(t, page), `"`+said+`"`) {
		t.Errorf("the digest on the page is not %s", said)
	}
}

func value(s attribute.Set, key attribute.Key) string {
	v, _ := s.Value(key)
	return v.AsString()
}
