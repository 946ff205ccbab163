// Command stripes sells a stock of one product: first under one key, then in 120 segments with a
// key each. An order takes 200 ms while it holds its key, so one key allows 5 orders a second, and
// 120 keys allow 600.
//
//	go run ./examples/stripes                        in the memory of the process
//	go run ./examples/stripes -redis localhost:6379  with the locks on your Redis; it removes the keys that it makes
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
	"fmt"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	segments = 120
	warmUp   = 1100 * time.Millisecond
	window   = 3 * time.Second // orders are counted during it
)

func main() { program.Main() }

var program = stage.Program{Name: "stripes", Memory: true, Play: func(ctx context.Context, s *stage.Stage) error {
	node, err := s.Node(lockcore.Options{})
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(s.Out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "segments\tcustomers\torders/s\tpossible\t")
	for _, c := range []struct{ segments, customers int }{{1, 10}, {segments, 10 * segments}} {
		rate, err := ordersPerSecond(ctx, &shop{node.Locks, newTable(c.segments, 1_000_000)}, c.customers)
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
	sold, soldOut, err := sellOut(ctx, &shop{node.Locks, newTable(segments, 2)}, 3*segments)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\n%d customers for %d units: %d orders, %d times sold out\n", 3*segments, 2*segments, sold, soldOut)
	if sold != 2*segments || soldOut != segments {
		return fmt.Errorf("%d units were sold as %d orders", 2*segments, sold)
	}
	return nil
}}

// ordersPerSecond lets customers order one unit after another, and counts the orders that are done
// in the window.
func ordersPerSecond(ctx context.Context, s *shop, customers int) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	counted := errors.New("the window has ended")
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
	_ = stage.Sleep(ctx, warmUp)
	before, began := done.Load(), time.Now()
	_ = stage.Sleep(ctx, window)
	orders, took := done.Load()-before, time.Since(began)
	cancel(counted)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, counted) {
		return 0, err
	}
	return float64(orders) / took.Seconds(), nil
}

// sellOut lets each customer order one unit.
func sellOut(ctx context.Context, s *shop, customers int) (sold, soldOut int, err error) {
	errs := make([]error, customers)
	var all sync.WaitGroup
	for i := range customers {
		all.Go(func() { errs[i] = s.order(ctx) })
	}
	all.Wait()
	for _, err := range errs {
		switch {
		case err == nil:
			sold++
		case errors.Is(err, errSoldOut):
			soldOut++
		default:
			return 0, 0, err
		}
	}
	if left := s.stock.units(); left != 0 {
		return 0, 0, fmt.Errorf("%d units are left", left)
	}
	return sold, soldOut, nil
}
