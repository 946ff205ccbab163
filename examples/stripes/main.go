// Command stripes sells a stock of one product: first under one key, then in 120 segments with a
// key each. An order takes 200 ms while it holds its key, so one key allows 5 orders a second, and
// 120 keys allow 600.
//
//	go run ./examples/stripes                        in the memory of the process
//	go run ./examples/stripes -redis localhost:6379  with the locks on your Redis; the keys expire within minutes
//
// It takes ten seconds, checks its own numbers and exits with 1 if they are not as expected. Read
// stock.go first.
//
// Use stripes for work that takes long. A key that is held for less than a millisecond passes
// thousands of times a second from one caller to the next.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	segments = 120
	warmUp   = 1100 * time.Millisecond
	window   = 3 * time.Second // orders are counted during it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "stripes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("stripes", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else the memory of the process")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	locks, closeLocks, err := open(*addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLocks()) }()

	t := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "segments\tcustomers\torders/s\tpossible\t")
	for _, c := range []struct{ segments, customers int }{{1, 10}, {segments, 10 * segments}} {
		rate, err := ordersPerSecond(ctx, &shop{locks, newTable(c.segments, 1_000_000)}, c.customers)
		if err != nil {
			return err
		}
		possible := float64(c.segments) / orderTime.Seconds()
		fmt.Fprintf(t, "%d\t%d\t%.0f\t%.0f\t\n", c.segments, c.customers, rate, possible)
		if rate < 0.8*possible || rate > 1.1*possible {
			return fmt.Errorf("%d segments allow %.0f orders/s, and %.0f were measured", c.segments, possible, rate)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	sold, refused, err := sellOut(ctx, &shop{locks, newTable(segments, 2)}, 3*segments)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n%d customers for %d units: %d orders, %d times sold out\n", 3*segments, 2*segments, sold, refused)
	if sold != 2*segments || refused != segments {
		return fmt.Errorf("%d units were sold as %d orders", 2*segments, sold)
	}
	return nil
}

// open returns a Locker in memory or on the Redis at addr.
func open(addr string) (locks *lockcore.Locker, closeAll func() error, err error) {
	var rdb *redis.Client
	if addr == "" {
		locks, err = lockcore.NewMemory(lockcore.Options{})
	} else {
		rdb = redis.NewClient(&redis.Options{Addr: addr})
		locks, err = lockcore.New(rdb, lockcore.Options{Prefix: "holdfast-stripes"})
	}
	if err != nil {
		return nil, nil, err
	}
	return locks, func() error {
		err := locks.Close(context.Background())
		if rdb != nil {
			err = errors.Join(err, rdb.Close())
		}
		return err
	}, nil
}

// ordersPerSecond lets customers order one unit after another, and counts the orders that are done
// in the window.
func ordersPerSecond(ctx context.Context, s *shop, customers int) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := errors.New("the window is over")
	var done atomic.Int64
	var all sync.WaitGroup
	for range customers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := s.order(ctx); err == nil {
					done.Add(1)
				} else if ctx.Err() == nil {
					cancel(err)
				}
			}
		})
	}
	sleep(ctx, warmUp)
	before, began := done.Load(), time.Now()
	sleep(ctx, window)
	orders, took := done.Load()-before, time.Since(began)
	cancel(over)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, over) {
		return 0, err
	}
	return float64(orders) / took.Seconds(), nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sellOut lets each customer order one unit.
func sellOut(ctx context.Context, s *shop, customers int) (sold, refused int64, err error) {
	var ok, soldOut atomic.Int64
	errs := make([]error, customers)
	var all sync.WaitGroup
	for i := range customers {
		all.Go(func() {
			switch err := s.order(ctx); {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, errSoldOut):
				soldOut.Add(1)
			default:
				errs[i] = err
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	if left := s.stock.units(); left != 0 {
		return 0, 0, fmt.Errorf("%d units are left", left)
	}
	return ok.Load(), soldOut.Load(), nil
}
