// Command observability shows what can be seen of holdfast: two Lockers, as two processes would have, contend for a few
// accounts, and now and then something goes wrong on purpose. /metrics is what Prometheus scrapes, /debug/spans what happened.
//
//	go run .                        on a Redis inside the process
//	go run . -redis localhost:6379  on yours; it has a prefix of its own, and what it keeps there is gone after a day
//	docker compose up               the same with Prometheus, the alerts and the dashboard of docs/observability
//
// Read telemetry.go first: it is all that a program needs. This is a module of its own, so that the exporter is no
// dependency of holdfast.
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
	pause := flags.Duration("pause", 20*time.Second, "between one trouble and the next; 0: no trouble")
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
		inside.ClockTTL(true) // else nothing would ever run out
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

// demo is what the workers, the troubles and the server share.
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

// serve works and answers until ctx ends, and then lets end what is under way.
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
	go func() { failed <- srv.Serve(listener) }() // ends with Shutdown or by its error

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
