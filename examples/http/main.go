// Command http is a small shop whose POST /orders is safe to repeat. Its spans are at /debug/spans.
//
//	go run ./examples/http                        on a Redis inside the process
//	go run ./examples/http -redis localhost:6379  on your Redis; the keys expire within ten minutes
//
// It serves until it is interrupted (Ctrl-C), and prints requests to paste into another terminal.
// Read shop.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	redisAddr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else one inside the process")
	work := flags.Duration("work", 500*time.Millisecond, "how long an order takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	rdb, closeRedis, err := connect(ctx, *redisAddr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRedis()) }()

	spans := &ring{}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }()
	observer, err := tracing.New(tracing.Options{TracerProvider: provider})
	if err != nil {
		return err
	}
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: "example-http", Observer: observer})
	if err != nil {
		return err
	}
	defer func() { // after the server, whose requests release their keys first
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, locks.Close(ctx))
	}()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	shop{work: *work, tracer: provider.Tracer("shop")}.routes(mux, locks)
	mux.Handle("GET /debug/spans", spans)
	invite(stdout, "http://"+listener.Addr().String())
	return serve(ctx, listener, mux)
}

// connect returns a client of the Redis at addr, or of one inside the process, and a function that
// ends both.
func connect(ctx context.Context, addr string) (*redis.Client, func() error, error) {
	inside := miniredis.NewMiniRedis()
	if addr == "" {
		inside.ClockTTL(true) // without it, no key would expire
		if err := inside.Start(); err != nil {
			return nil, nil, err
		}
		addr = inside.Addr()
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	end := func() error {
		err := rdb.Close()
		inside.Close()
		return err
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("redis at %s: %w", addr, err), end())
	}
	return rdb, end, nil
}

// serve serves requests until ctx ends. Then it waits for the requests under way.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }() // ends with Shutdown or with an error
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}
