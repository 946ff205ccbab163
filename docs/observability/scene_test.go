package observability_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
	"github.com/holdfast-go/holdfast/tracing"
)

// scene has two Lockers, which represent two processes, on a Redis in memory, in a bubble.
type scene struct {
	*testing.T
	redis  *redistest.Memory
	reader *sdkmetric.ManualReader
	a, b   *lockcore.Locker
}

var (
	once sync.Once
	all  metricdata.ResourceMetrics
)

// provoke causes everything that holdfast counts, with the real code, and returns the metrics.
func provoke(t *testing.T) metricdata.ResourceMetrics {
	t.Helper()
	once.Do(func() {
		synctest.Test(t, func(t *testing.T) {
			s := &scene{T: t, redis: redistest.Bubble(t), reader: sdkmetric.NewManualReader()}
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
			o, err := tracing.New(tracing.Options{MeterProvider: meters, TracerProvider: tracenoop.NewTracerProvider()})
			if err != nil {
				t.Fatal(err)
			}
			s.a, s.b = s.locker(o), s.locker(o)
			s.waits()
			s.group(o)
			s.repeats()
			s.tickets()
			s.rates()
			s.ends()
			s.outages()
			s.majority(o)
			s.jobs()
			s.parks()
			s.replaces()
			s.pauses()
			s.ticks()
			s.closes()
			time.Sleep(time.Second) // a go-redis subscription sleeps 100 ms after an error, before it notices that it is closed
			if err := s.reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
		})
	})
	return all
}

func (s *scene) locker(o event.Observer, edit ...func(*redis.Options)) *lockcore.Locker {
	s.Helper()
	l, err := lockcore.New(s.redis.Client(s, edit...), lockcore.Options{Observer: o})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = l.Close(context.Background()) }) // closes has closed the Lockers of the scene before
	return l
}

func nothing(context.Context) error { return nil }

func named(name string) lockcore.Terms { return lockcore.Terms{Name: name, Wait: time.Second} }

// waits: one call holds the key for a minute, so that its lease is renewed. One waiter times out,
// and one gets the key.
func (s *scene) waits() {
	var wg sync.WaitGroup
	holding := make(chan struct{})
	wg.Go(func() {
		_ = guard.Exclusive(s.Context(), s.a, "account:1", named("account"), func(context.Context) error {
			close(holding)
			time.Sleep(time.Minute)
			return nil
		})
	})
	<-holding
	_ = guard.Exclusive(s.Context(), s.b, "account:1", named("account"), nothing)
	_ = guard.Exclusive(s.Context(), s.b, "account:1", lockcore.Terms{Name: "account", Wait: lockcore.Forever}, nothing)
	_ = guard.Shared(s.Context(), s.a, "prices:2026", named("prices"), nothing)
	_ = guard.Limited(s.Context(), s.b, "partner:1", lockcore.Limit{N: 3}, named("partner"), nothing)
	wg.Wait()
}

// majority: one of three servers is away, and a call requests what a majority cannot do.
func (s *scene) majority(o event.Observer) {
	var masters []*redis.Client
	for i := range 3 {
		masters = append(masters, redistest.Bubble(s).Client(s, func(o *redis.Options) {
			if o.Addr = fmt.Sprintf("10.0.0.%d:6379", i); i == 2 {
				o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
			}
		}))
	}
	l, err := lockcore.NewQuorum(masters, lockcore.Options{Observer: o})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	_ = guard.Exclusive(s.Context(), l, "account:majority", named("account"), nothing)
	time.Sleep(time.Second) // the two that reply are enough
	_, _ = guard.Once(s.Context(), l, "charge:majority", guard.OnceOptions{Terms: named("charge")}, nothing)
}

// group makes concurrent calls. While the first ones connect, the others wait for a group.
func (s *scene) group(o event.Observer) {
	l := s.locker(o, func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(time.Millisecond)
			return dial(ctx, network, addr)
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_ = guard.Exclusive(s.Context(), l, fmt.Sprint("account:group:", i), named("account"), nothing)
		})
	}
	wg.Wait()
}

// repeats: calls of once keys that were used before, with different results.
func (s *scene) repeats() {
	o := guard.OnceOptions{Terms: named("charge"), Fingerprint: []byte("10 EUR")}
	for range 2 {
		_, _ = guard.Once(s.Context(), s.a, "charge:1", o, nothing) // completed, replayed
	}
	o.Fingerprint = []byte("99 EUR")
	_, _ = guard.Once(s.Context(), s.a, "charge:1", o, nothing) // mismatch

	o = guard.OnceOptions{Terms: named("charge")}
	_, _ = guard.OnceValue(s.Context(), s.a, "charge:2", o, func(context.Context) (string, error) { return "receipt", nil })
	_, _ = guard.OnceValue(s.Context(), s.a, "charge:2", o, func(context.Context) (int, error) { return 7, nil }) // bad_record

	o.Mode = guard.AtMostOnce
	for range 2 { // unknown, abandoned
		func() {
			defer func() { _ = recover() }()
			_, _ = guard.Once(s.Context(), s.a, "charge:3", o, func(context.Context) error { panic("in the middle") })
		}()
	}
	o.Mode = guard.AtLeastOnce
	_, _ = guard.Once(s.Context(), s.a, "charge:5", o, func(context.Context) error { return context.DeadlineExceeded }) // failed
	_, _ = guard.Once(s.Context(), s.b, "charge:3", o, nothing)                                                         // took_over
}

// tickets causes the outcomes transferred, completed (by the adopter) and bad_ticket.
func (s *scene) tickets() {
	var ticket string
	_ = guard.Exclusive(s.Context(), s.a, "account:2", named("account"), func(ctx context.Context) (err error) {
		ticket, err = guard.Ticket(ctx, "account:2", time.Hour)
		return err
	})
	for range 2 {
		le, _ := s.b.Adopt(s.Context(), ticket, named("account"))
		_ = le.Release(s.Context())
	}
}

// rates causes the outcomes admitted and busy.
func (s *scene) rates() {
	for range 2 {
		_ = guard.Throttled(s.Context(), s.a, "partner:1", lockcore.Rate{N: 1, Per: time.Hour}, lockcore.ThrottleOptions{Name: "partner"}, nothing)
	}
}

// ends: leases end before their handlers return.
func (s *scene) ends() {
	stubborn := func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(time.Second)
		return nil
	}
	_ = guard.Exclusive(s.Context(), s.a, "report:1", lockcore.Terms{Name: "report", MaxHold: time.Second}, stubborn)
	_ = guard.Exclusive(s.Context(), s.a, "report:4", lockcore.Terms{Name: "report", Stall: time.Second}, stubborn)
	_ = guard.Exclusive(s.Context(), s.a, "report:2", named("report"), func(ctx context.Context) error {
		_ = s.b.Revoke(s.Context(), event.KindExclusive, "report:2")
		return stubborn(ctx)
	})
	_ = guard.Exclusive(s.Context(), s.a, "report:5", named("report"), func(ctx context.Context) error {
		_ = access.Of(s.b).Replace(s.Context(), "report:5", math.MaxInt64)
		return stubborn(ctx)
	})
	_ = guard.Exclusive(s.Context(), s.a, "report:3", named("report"), func(ctx context.Context) error {
		s.redis.Redis.FlushAll()
		return stubborn(ctx)
	})
}

// outages: Redis is unavailable while a handler runs and other calls begin, and again when a record
// should be stored.
func (s *scene) outages() {
	const away = "LOADING Redis is loading the dataset in memory"
	_ = guard.Exclusive(s.Context(), s.a, "account:2", named("account"), func(ctx context.Context) error {
		s.redis.Redis.SetError(away)
		_ = guard.Exclusive(s.Context(), s.b, "account:3", named("account"), nothing) // unavailable
		leaves, cancel := context.WithCancel(s.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		_ = guard.Exclusive(leaves, s.b, "account:4", named("account"), nothing) // canceled
		<-ctx.Done()
		s.redis.Redis.SetError("")
		return nil
	})
	_, _ = guard.Once(s.Context(), s.a, "charge:4", guard.OnceOptions{Terms: named("charge")}, func(context.Context) error {
		s.redis.Redis.SetError(away)
		return nil
	})
	time.Sleep(time.Minute) // the record is retried while the lease is valid
	s.redis.Redis.SetError("")
}

// jobs: an asynq server without Configure gets a task without a key, and a task whose only attempt
// finds its key busy.
func (s *scene) jobs() {
	rdb := s.redis.Client(s)
	mux := asynq.NewServeMux()
	account := asynqmw.Exclusive(s.b, asynqmw.ByJSON("account", "/id"), asynqmw.ExclusiveOptions{})
	mail := asynqmw.Once(s.b, asynqmw.ByJSON("mail", "/id"), asynqmw.OnceOptions{})
	mux.Handle("mail", mail(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	mux.Handle("transfer", account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 1, TaskCheckInterval: time.Second, LogLevel: asynq.FatalLevel})
	if err := srv.Start(mux); err != nil {
		s.Fatal(err)
	}
	defer srv.Shutdown()
	client := asynq.NewClientFromRedisClient(rdb)
	for _, payload := range []string{`{"id": 1, "to": "a"}`, `{"id": 1, "to": "b"}`} { // payload_mismatches
		if _, err := client.Enqueue(asynq.NewTask("mail", []byte(payload))); err != nil {
			s.Fatal(err)
		}
	}
	_ = guard.Exclusive(s.Context(), s.a, "account:5", named("account"), func(context.Context) error {
		for _, payload := range []string{`{}`, `{"id": 5}`} {
			if _, err := client.Enqueue(asynq.NewTask("transfer", []byte(payload)), asynq.MaxRetry(0), asynq.Timeout(5*time.Second)); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		return nil
	})
}

// parks: a task is parked, comes back and finds the key busy, is parked again, and runs when the
// key is free.
func (s *scene) parks() {
	rdb := s.redis.Client(s)
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	mux := asynq.NewServeMux()
	alone := asynqmw.Exclusive(s.b, asynqmw.ByJSON("account", "/id"), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	ran := make(chan struct{})
	mux.Handle("transfer", alone(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(ran)
		return nil
	})))
	cfg := asynqmw.ConfigureParking(asynq.Config{Concurrency: 1, TaskCheckInterval: time.Second, LogLevel: asynq.FatalLevel}, asynqmw.Parking{Inspector: inspector})
	srv := asynq.NewServerFromRedisClient(rdb, cfg)
	if err := srv.Start(mux); err != nil {
		s.Fatal(err)
	}
	defer srv.Shutdown()
	_ = guard.Exclusive(s.Context(), s.a, "account:7", named("account"), func(context.Context) error {
		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("transfer", []byte(`{"id": 7}`))); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute) // longer than the delay of the task: a lease and up to a quarter of it
		return nil
	})
	<-ran
}

// replaces: two tasks of Latest wait for their key, and one of them is older.
func (s *scene) replaces() {
	latest := asynqmw.Latest(s.b, asynqmw.ByJSON("account", "/id"), asynqmw.LatestOptions{})(asynq.NotFoundHandler())
	var wg sync.WaitGroup
	_ = guard.Exclusive(s.Context(), s.a, "account:8", named("account"), func(context.Context) error {
		for range 2 {
			wg.Go(func() { _ = latest.ProcessTask(s.Context(), asynq.NewTask("rebuild", []byte(`{"id": 8}`))) })
		}
		time.Sleep(time.Second) // shorter than the wait of the tasks
		return nil
	})
	wg.Wait()
}

// pauses: the resource of a handler refuses it for a minute.
func (s *scene) pauses() {
	_ = guard.Exclusive(s.Context(), s.a, "partner:2", named("partner"), func(context.Context) error {
		return guard.Paused(context.DeadlineExceeded, time.Minute)
	})
}

// ticks: a tick is abandoned, and the instance that has the next tick reports that.
func (s *scene) ticks() {
	tick := cronmw.Tick{Name: "sweep", Time: time.Now().Truncate(time.Second)}
	lease, _, err := s.b.Claim(s.Context(), tick.Key(), lockcore.Claim{Terms: named("sweep")})
	if err == nil {
		err = lease.Abandon(s.Context())
	}
	if err != nil {
		s.Fatal(err)
	}
	jobs, err := cronmw.New(s.a, cronmw.Options{})
	if err != nil {
		s.Fatal(err)
	}
	o := cronmw.Job{Terms: lockcore.Terms{Name: "sweep"}}
	if err := jobs.Every("sweep", time.Second, o, func(context.Context, cronmw.Tick) error { return nil }); err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
	defer cancel()
	if err := jobs.Run(ctx); err != nil {
		s.Error(err)
	}
}

// closes: one Locker is closed while a call waits, the other while a handler runs.
func (s *scene) closes() {
	var wg sync.WaitGroup
	running := make(chan struct{})
	wg.Go(func() {
		_ = guard.Exclusive(s.Context(), s.a, "account:6", named("account"), func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			return nil
		})
	})
	<-running
	wg.Go(func() {
		_ = guard.Exclusive(s.Context(), s.b, "account:6", lockcore.Terms{Name: "account", Wait: lockcore.Forever}, nothing)
	})
	synctest.Wait()
	_ = s.b.Close(s.Context())
	soon, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	_ = s.a.Close(soon)
	wg.Wait()
}
