//go:build unix

// Command river shows what one hot customer does to a River worker, and what holdfast changes. It
// charges account 42 as often as all other accounts together, three times: without a lock, one charge
// of an account at a time, and the same with waiting jobs outside of the workers.
//
//	go -C examples/river run .                                       starts a PostgreSQL (initdb must be on the machine)
//	go -C examples/river run . -postgres postgres://localhost/test   in a schema of its own, which it removes
//
// It checks its own numbers, and exits with 1 if they are not as expected.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/pgtest"
)

func main() {
	dsn := flag.String("postgres", "", "`address` of a database, such as postgres://localhost/test; default: a server is started")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *dsn)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// run plays the story in the database of dsn, or of a server that it starts and stops.
func run(ctx context.Context, out io.Writer, dsn string) error {
	if dsn == "" {
		server, err := pgtest.Start(pgtest.Fast)
		if err != nil {
			return fmt.Errorf("no PostgreSQL could be started, so name one with -postgres: %w", err)
		}
		defer server.Stop()
		dsn = server.DSN("postgres")
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	fmt.Fprintf(out, "%d jobs of account %s and %d of other accounts, %v each, %d workers\n", jobs, hot, jobs, work, workers)
	for _, c := range chapters {
		r, err := c.play(ctx, pool)
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		fmt.Fprintf(out, "  %-20s others done after %4.1fs, account %s after %4.1fs, up to %d of its jobs at once\n", c.title+":", r.others.Seconds(), hot, r.hot.Seconds(), r.most)
		if r.attempts > 0 {
			return fmt.Errorf("%s: %d attempts were used up", c.title, r.attempts)
		}
		if alone := r.most == 1; alone != (c.guards != nil) {
			return errors.New(c.title + ": not as expected")
		}
	}
	return nil
}
