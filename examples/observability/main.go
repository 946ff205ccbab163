// Command observability shows the telemetry of holdfast. Two Lockers, which act as two processes,
// contend for a few accounts. At intervals the program causes a fault. Prometheus scrapes /metrics,
// and /debug/spans shows the spans.
//
//	go run .                        on a Redis inside the process
//	go run . -redis localhost:6379  on your Redis; it removes the keys that it makes
//	docker compose up               the same with Prometheus, the alerts and the dashboard of docs/observability
//
// Read telemetry.go first: a program needs nothing else. This is a separate module, so that
// holdfast does not depend on the exporter.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
)

func main() { program().Main() }

func program() stage.Program {
	var addr string
	var pause time.Duration
	return stage.Program{
		Name: "observability",
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&addr, "addr", "127.0.0.1:8081", "`host:port` to listen on")
			f.DurationVar(&pause, "pause", 20*time.Second, "`time` between two faults; 0: no faults")
		},
		Play: func(ctx context.Context, s *stage.Stage) (err error) {
			tel, err := newTelemetry()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, tel.close()) }()
			d := &demo{Stage: s, observer: tel.observer, tracer: tel.tracer}
			for _, n := range []**stage.Node{&d.a, &d.b} {
				if *n, err = s.Node(lockcore.Options{Observer: tel.observer}); err != nil {
					return err
				}
			}
			return d.serve(ctx, addr, tel, pause)
		},
	}
}

// demo is what the workers, the faults and the server share.
type demo struct {
	*stage.Stage
	a, b     *stage.Node
	observer event.Observer // of both nodes
	tracer   tracer
	url      string
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// serve runs the server, the work and the faults until ctx ends. Then it waits for what is under
// way.
func (d *demo) serve(ctx context.Context, addr string, tel *telemetry, pause time.Duration) error {
	mux := http.NewServeMux()
	tel.routes(mux)
	d.routes(mux)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	return stage.Serve(ctx, addr, mux, func(url string) {
		d.url = url
		d.say("metrics    %s/metrics", url)
		d.say("spans      %s/debug/spans", url)
		d.say("dashboard  http://localhost:3000/d/holdfast after: docker compose up")
		all.Go(func() { d.work(ctx) })
		if pause > 0 {
			all.Go(func() { d.makeTrouble(ctx, pause) })
		}
	})
}
