package security_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/tracing"
)

// Each canary is the start of private data, and names the kind of that data.
const (
	inKey     = "canarykey77"
	inTask    = "canarytask77"
	inPayload = "canarypayload77"
	inResult  = "canaryresult77"
	inFailure = "canaryfailure77"
)

// witness records all data that leaves a Locker.
type witness struct {
	*testing.T
	spans   *tracetest.InMemoryExporter
	metrics *sdkmetric.ManualReader
	event.Observer
	heard *locktest.Recorder

	mu     sync.Mutex
	errors strings.Builder
	logs   bytes.Buffer
}

func newWitness(t *testing.T, o tracing.Options) *witness {
	t.Helper()
	w := &witness{T: t, spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader(), heard: new(locktest.Recorder)}
	o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.metrics))
	traces, err := tracing.New(o)
	check(t, err)
	w.Observer = event.Join(traces, w.heard)
	out := log.Writer()
	log.SetOutput(&w.logs)
	t.Cleanup(func() { log.SetOutput(out) })
	return w
}

// fails records the error of a call, which must match want.
func (w *witness) fails(err error, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("%v, want %v", err, want)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.errors, "%v\n%+v\n", err, err)
}

// told returns the recorded data by its kind: spans, metrics, events, errors and logs.
func (w *witness) told() map[string]string {
	w.Helper()
	spans, err := json.Marshal(w.spans.GetSpans())
	check(w.T, err)
	metrics, err := json.Marshal(w.collect())
	check(w.T, err)
	var events strings.Builder
	for _, e := range w.heard.Events() {
		fmt.Fprintf(&events, "%T %+v\n", e, e)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return map[string]string{
		"spans": string(spans), "metrics": string(metrics), "events": events.String(), "errors": w.errors.String(), "logs": w.logs.String(),
	}
}

func (w *witness) collect() metricdata.ResourceMetrics {
	w.Helper()
	var rm metricdata.ResourceMetrics
	check(w.T, w.metrics.Collect(context.Background(), &rm))
	return rm
}

// Payloads, results and hold ids never leave a Locker. Keys, tasks and failures are in errors and
// may be in events. Keys are also in spans if ExposeRawKeys is set. Each canary must appear where
// it is allowed, except in events, so that the test can fail.
// Shows: X4
func TestCanaries(t *testing.T) {
	testlevel.Full(t)
	for _, expose := range []bool{false, true} {
		t.Run(fmt.Sprintf("expose %v", expose), func(t *testing.T) {
			w := newWitness(t, tracing.Options{ExposeRawKeys: expose})
			ids := w.live()
			allowed := map[string]string{inKey: "errors events", inTask: "errors events", inFailure: "errors events"}
			if expose {
				allowed[inKey] += " spans"
			}
			told := w.told()
			for _, canary := range append([]string{inKey, inTask, inPayload, inResult, inFailure}, ids...) {
				for by, text := range told {
					if by == "logs" && text == "" {
						continue
					}
					seen := found(text, canary)
					if may := strings.Contains(allowed[canary], by); seen && !may {
						t.Errorf("%s: %s", canary, by)
					} else if !seen && may && by != "events" {
						t.Errorf("inconclusive: no %s in the %s", canary, by)
					}
				}
			}
			for by, least := range map[string]int{"spans": 5000, "metrics": 1000, "events": 1000, "errors": 300} {
				if len(told[by]) < least {
					t.Errorf("inconclusive: %d bytes of %s", len(told[by]), by)
				}
			}
		})
	}
}

// found reports whether where contains text as it is, in hex, or in base64.
func found(where, text string) bool {
	b64 := base64.StdEncoding.EncodeToString([]byte(text))
	return strings.Contains(where, text) || strings.Contains(where, hex.EncodeToString([]byte(text))) || strings.Contains(where, b64[:len(b64)-4])
}

// live causes an outcome of each kind, and returns the hold ids that Redis received.
func (w *witness) live() (ids []string) {
	m := redistest.Bubble(w.T)
	rdb := m.Client(w.T)
	a := newLocker(w.T, rdb, lockcore.Options{Observer: w, Terms: lockcore.Terms{Name: "story", Lease: 2 * time.Second}})
	b := newLocker(w.T, m.Client(w.T), lockcore.Options{Observer: w, Terms: lockcore.Terms{Wait: 50 * time.Millisecond}})
	ctx := lockcore.WithTask(w.Context(), inTask)
	check(w.T, guard.Exclusive(ctx, a, inKey, lockcore.Terms{}, func(context.Context) error {
		fields, err := redistest.Fields(ctx, rdb, "holdfast:2:x:{"+inKey+"}")
		check(w.T, err)
		ids = append(ids, fields["h"])
		w.fails(guard.Exclusive(w.Context(), b, inKey, lockcore.Terms{}, nothing), lockcore.ErrBusy)
		time.Sleep(800 * time.Millisecond) // a renewal
		return nil
	}))
	w.fails(guard.Exclusive(ctx, a, inKey, lockcore.Terms{}, func(ctx context.Context) error {
		check(w.T, rdb.FlushAll(ctx).Err())
		<-ctx.Done()
		return nil
	}), lockcore.ErrLost)
	ids = append(ids, w.once(ctx, a, rdb)...)
	w.task(ctx, a, b)
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // no server listens there
	defer func() { _ = away.Close() }()
	w.fails(guard.Exclusive(ctx, newLocker(w.T, away, lockcore.Options{Observer: w}), inKey, lockcore.Terms{}, nothing), lockcore.ErrUnavailable)
	return ids
}

func nothing(context.Context) error { return nil }

// once runs, replays, and then meets another payload, a record that does not decode, and a recorded
// failure.
func (w *witness) once(ctx context.Context, l *lockcore.Locker, rdb *redis.Client) (ids []string) {
	o := guard.OnceOptions{Fingerprint: idempotency.Fingerprint(nil, []byte(inPayload))}
	hash := "holdfast:2:o:{" + inKey + "}"
	run := func(context.Context) (string, error) {
		fields, err := redistest.Fields(ctx, rdb, hash)
		check(w.T, err)
		ids = append(ids, fields["h"])
		return inResult, nil
	}
	for range 2 {
		res, err := guard.OnceValue(ctx, l, inKey, o, run)
		if err != nil || res.Value != inResult {
			w.Errorf("%+v, %v", res, err)
		}
	}
	o.Fingerprint = []byte(inPayload)
	_, err := guard.OnceValue(ctx, l, inKey, o, run)
	w.fails(err, lockcore.ErrMismatch)
	check(w.T, redistest.Unfold(ctx, rdb, hash))
	check(w.T, rdb.HSet(ctx, hash, "r", inResult).Err())
	_, err = guard.OnceValue(ctx, l, inKey, guard.OnceOptions{}, run)
	w.fails(err, lockcore.ErrRecord)
	failure := errors.New(inFailure)
	_, err = guard.Once(ctx, l, inKey+"2", guard.OnceOptions{}, func(context.Context) error { return guard.Final(failure) })
	w.fails(err, failure)
	_, err = guard.Once(ctx, l, inKey+"2", guard.OnceOptions{}, nothing) // the recorded one
	if err == nil || !strings.Contains(err.Error(), inFailure) {
		w.Errorf("replayed failure: %v", err)
	}
	w.fails(guard.Exclusive(ctx, l, inKey, lockcore.Terms{}, func(context.Context) error { return failure }), failure)
	return ids
}

// task processes asynq tasks: one that runs and meets a busy key, one that is done, one without a
// key, and one whose payload is not JSON.
func (w *witness) task(ctx context.Context, a, b *lockcore.Locker) {
	task := asynq.NewTask("charge", []byte(`{"id": "`+inKey+`3", "card": "`+inPayload+`"}`))
	key := asynqmw.ByJSON("payment", "/id")
	handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		w.fails(asynqmw.Exclusive(b, key, asynqmw.ExclusiveOptions{})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })).
			ProcessTask(guard.Detach(ctx), task), lockcore.ErrBusy)
		return nil
	})
	check(w.T, asynqmw.Exclusive(a, key, asynqmw.ExclusiveOptions{})(handler).ProcessTask(ctx, task))
	once := asynqmw.Once(a, key, asynqmw.OnceOptions{})(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		return asynqmw.SetResult(ctx, []byte(inResult))
	}))
	for range 2 {
		_ = once.ProcessTask(ctx, task) // the result writer of asynq is missing
	}
	keyless := asynq.NewTask("charge", []byte(`{"card": "`+inPayload+`"}`))
	err := once.ProcessTask(ctx, keyless)
	w.fails(err, lockcore.ErrNotRun)
	w.fails(once.ProcessTask(ctx, asynq.NewTask("charge", []byte(inPayload))), lockcore.ErrNotRun)
}

// Ten thousand keys cause as many time series as ten keys.
func TestCardinality(t *testing.T) {
	testlevel.Full(t)
	w := newWitness(t, tracing.Options{ExposeRawKeys: true})
	l := newLocker(t, redistest.Real(t).Client(t), lockcore.Options{Observer: w, Terms: lockcore.Terms{Name: "load"}})
	use := func(from, to int) int {
		for i := from; i < to; i++ {
			ctx := lockcore.WithTask(t.Context(), fmt.Sprint("task ", i))
			check(t, guard.Exclusive(ctx, l, fmt.Sprint("account:", i), lockcore.Terms{}, nothing))
			if i%10 == 0 {
				_, err := guard.Once(ctx, l, fmt.Sprint("payment:", i), guard.OnceOptions{}, nothing)
				check(t, err)
			}
			w.spans.Reset()
		}
		return w.series()
	}
	few := use(0, 10)
	many := use(10, 10_000)
	if few < 5 || many != few {
		t.Errorf("%d series of 10 keys, %d of 10,000", few, many)
	}
}

// series counts the time series that a metrics backend would store.
func (w *witness) series() (n int) {
	for _, s := range w.collect().ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				n += len(d.DataPoints)
			case metricdata.Histogram[float64]:
				n += len(d.DataPoints)
			default:
				w.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return n
}
