// Command observability shows the telemetry of holdfast. Two Lockers, which act as two processes,
// contend for a few accounts. At intervals the program causes a fault. Prometheus scrapes /metrics,
// and /debug/spans shows the spans.
//
//	go run .                        on a Redis inside the process
//	go run . -redis localhost:6379  on your Redis; it has a separate prefix, and its keys expire within a day
//	docker compose up               the same with Prometheus, the alerts and the dashboard of docs/observability
//
// Read telemetry.go first: a program needs nothing else. This is a separate module, so that
// holdfast does not depend on the exporter.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("observability", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("addr", "127.0.0.1:8081", "`host:port` to listen on")
	redisAddr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else one inside the process")
	pause := flags.Duration("pause", 20*time.Second, "`time` between two faults; 0: no faults")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	redis.SetLogger(quiet{})
	tel, err := newTelemetry()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tel.close()) }()
	if *redisAddr == "" {
		inside := miniredis.NewMiniRedis()
		inside.ClockTTL(true) // without it, no key would expire
		if err := inside.Start(); err != nil {
			return err
		}
		defer inside.Close()
		*redisAddr = inside.Addr()
	}
	d := &demo{observer: tel.observer, tracer: tel.tracer, out: stdout}
	for _, n := range []**node{&d.a, &d.b} {
		if *n, err = newNode(ctx, *redisAddr, tel.observer); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*n).close()) }()
	}
	return d.serve(ctx, *addr, tel, *pause)
}

// demo is the state that the workers, the faults and the server share.
type demo struct {
	a, b     *node
	observer lockcore.Observer // of both nodes
	tracer   tracer
	url      string

	mu  sync.Mutex // guards out
	out io.Writer
}

func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// serve runs the work and the server until ctx ends. Then it waits for the work under way.
func (d *demo) serve(ctx context.Context, addr string, tel *telemetry, pause time.Duration) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // it listens on tcp
	d.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	mux := http.NewServeMux()
	tel.routes(mux)
	d.routes(mux)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }() // ends with Shutdown or with an error

	d.say("metrics    %s/metrics", d.url)
	d.say("spans      %s/debug/spans", d.url)
	d.say("dashboard  http://localhost:3000/d/holdfast after: docker compose up")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { d.work(ctx) })
	if pause > 0 {
		wg.Go(func() { d.makeTrouble(ctx, pause) })
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	cancel()
	wg.Wait()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	return cmp.Or(err, srv.Shutdown(ctx))
}
