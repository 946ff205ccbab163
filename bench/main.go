package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
)

func main() {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	if o.list {
		list(out)
		return nil
	}
	r, err := measureAll(ctx, o, progress)
	if err != nil {
		return err
	}
	return errors.Join(r.write(out), r.broken)
}

// report has the results, with the options and the environment.
type report struct {
	options     options
	environment environment
	results     results
	failures    []string // runs without a result
	broken      error    // failures of holdfast or of the floor: the program fails too
}

func measureAll(ctx context.Context, o options, progress io.Writer) (report, error) {
	srv, err := startServer(ctx, o.redis)
	if err != nil {
		return report{}, err
	}
	defer srv.close()
	r := report{options: o, environment: newEnvironment(srv.version(ctx))}
	for _, s := range o.scenarios {
		if err := r.measure(ctx, srv, s, progress); err != nil {
			return report{}, err
		}
	}
	r.environment.readLoad()
	return r, nil
}

// measure runs all cells of s on srv, or on the servers that it starts for s. If these do not start,
// the other scenarios are still measured. The order of the cells is rotated with each round, so that
// each of them runs first in some rounds. A run that fails is recorded, and the other runs continue
// unless ctx has ended.
func (r *report) measure(ctx context.Context, srv *server, s scenario, progress io.Writer) error {
	own, err := s.start(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.fail(holdfastName, fmt.Errorf("%s: %w", s.name, err))
		return nil
	case own != nil:
		defer own.close()
		srv = own
	}
	cells := s.cells(r.options)
	rounds := make([][]result, len(cells))
	for round := range r.options.roundsOf(s) {
		fmt.Fprintf(progress, "%s, round %d of %d\n", s.name, round+1, r.options.roundsOf(s))
		for i, err := range r.round(ctx, srv, s, cells, rounds, round) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				r.fail(cells[i].library, err)
				fmt.Fprintln(progress, err)
			}
		}
	}
	for i, rs := range rounds {
		if m := median(rs); m.scenario != "" {
			r.results = append(r.results, m)
			if err := m.doubt(); err != nil {
				r.fail(cells[i].library, err)
			}
		}
	}
	return nil
}

// round runs all cells once, and appends their results to rounds. A scenario with faults runs all its
// cells at the same time, because they mostly wait. Each goroutine writes only the elements of its
// cell.
func (r *report) round(ctx context.Context, srv *server, s scenario, cells []cell, rounds [][]result, round int) []error {
	errs := make([]error, len(cells))
	one := func(i int) {
		res, err := run(ctx, srv, s, cells[i], r.options)
		if errs[i] = err; err != nil {
			res = result{} // its figures are not complete
		}
		rounds[i] = append(rounds[i], res)
	}
	var all sync.WaitGroup
	for i := range cells {
		i = (i + round) % len(cells)
		if s.kind == faultKind {
			all.Go(func() { one(i) })
			continue
		}
		one(i)
	}
	all.Wait()
	return errs
}

// fail records a run without a result, which the report shows. If the library is not a peer, the
// program also fails.
func (r *report) fail(library string, err error) {
	r.failures = append(r.failures, err.Error())
	if l, _ := libraryNamed(library); !l.peer {
		r.broken = errors.Join(r.broken, err)
	}
}

// write writes the pages to out and, with -write, the files whose figures were measured.
func (r report) write(out io.Writer) error {
	var errs []error
	file := func(name, text string) {
		if r.options.dir != "" && text != "" {
			errs = append(errs, os.WriteFile(filepath.Join(r.options.dir, name), []byte(text), 0o644))
		}
	}
	speed, faults := r.resultsPage(), r.faultsPage()
	_, err := io.WriteString(out, speed+faults)
	errs = append(errs, err)
	file("RESULTS.md", speed)
	file("FAULTS.md", faults)
	file("chart.svg", chart(r.results, r.conditions()))
	return errors.Join(errs...)
}
