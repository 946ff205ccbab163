package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const (
	workers  = 4 // of each node
	accounts = 3
	keep     = 10 * time.Minute
)

// work runs jobs on both nodes until ctx ends.
func (d *demo) work(ctx context.Context) {
	var wg sync.WaitGroup
	for w := range 2 * workers {
		n := d.a
		if w%2 == 1 {
			n = d.b
		}
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				d.job(ctx, n, w, i)
				_ = stage.Sleep(ctx, time.Duration(50+rand.IntN(200))*time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil { // long enough to be renewed
			_ = guard.Exclusive(ctx, d.a.Locks, "report:long", lockcore.Terms{Name: "report", Lease: 6 * time.Second},
				func(ctx context.Context) error { return stage.Sleep(ctx, 10*time.Second) })
		}
	})
	wg.Wait()
}

// job is a job as a queue delivers it: a transfer, or a charge that is delivered three times.
func (d *demo) job(ctx context.Context, n *stage.Node, w, i int) {
	id := fmt.Sprintf("job-%d-%d", w, i)
	ctx, span := d.tracer.Start(lockcore.WithTask(ctx, id), "job", trace.WithAttributes(attribute.String("job.id", id)))
	defer span.End()
	if i%5 == 0 {
		key := "charge:" + strconv.FormatInt(time.Now().Unix()/3, 10)
		_, _ = guard.Once(ctx, n.Locks, key, guard.OnceOptions{Terms: lockcore.Terms{Name: "charge"}, Keep: keep},
			func(ctx context.Context) error { return stage.Sleep(ctx, 50*time.Millisecond) })
		return
	}
	took := time.Duration(20+rand.IntN(80)) * time.Millisecond
	if i%17 == 0 {
		took = 1500 * time.Millisecond // calls that want this account now wait, and their spans name the holder
	}
	// A conflict here is an outcome like others: the metrics count it, and a queue would deliver
	// the job again.
	_ = guard.Exclusive(ctx, n.Locks, fmt.Sprintf("account:%d", rand.IntN(accounts)), lockcore.Terms{Name: "account"},
		func(ctx context.Context) error { return stage.Sleep(ctx, took) })
}

// routes registers orders that are safe to repeat, and the same handler behind one that reads the
// form first.
func (d *demo) routes(mux *http.ServeMux) {
	customer := func(*http.Request) (string, error) { return "customer", nil }
	once := httpmw.Idempotent(d.a.Locks, customer, httpmw.IdempotentOptions{Terms: lockcore.Terms{Name: "order"}, Keep: keep})
	create := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	mux.Handle("POST /orders", create)
	mux.HandleFunc("POST /orders/wrong", func(w http.ResponseWriter, r *http.Request) {
		_ = r.FormValue("csrf") // consumes the body that Idempotent must see
		create.ServeHTTP(w, r)
	})
}
