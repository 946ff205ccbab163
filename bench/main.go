package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
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
	srv, err := startServer(ctx, o.redis)
	if err != nil {
		return err
	}
	defer srv.close()
	fmt.Fprintf(progress, "bench: this takes about %v\n", o.estimate())
	r := report{options: o, environment: newEnvironment(srv.version(ctx))}
	for _, s := range o.scenarios {
		if err := r.run(ctx, srv, s, progress); err != nil {
			return err
		}
	}
	r.environment.readLoad()
	if err := r.write(out); err != nil {
		return err
	}
	return errors.Join(r.cells.violated(), r.broken)
}

// run measures s on srv, behind a proxy if s has a delay, or on a Cluster that it starts. If the
// Cluster does not start, the other scenarios are still measured.
func (r *report) run(ctx context.Context, srv *server, s scenario, progress io.Writer) error {
	switch {
	case s.faults():
		return r.measureFaults(ctx, srv, s, progress)
	case s.memory():
		return r.measureMemory(ctx, srv, s, progress)
	case s.cluster:
		cluster, err := startCluster(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.fail(holdfastName, fmt.Errorf("%s: %w", s.name, err))
			return nil
		}
		defer cluster.close()
		srv = cluster
	case s.delay > 0:
		p, err := startProxy(srv.addr, s.delay)
		if err != nil {
			return err
		}
		defer p.close()
		srv = srv.behind(p)
	}
	return r.measure(ctx, srv, s, progress)
}

// measure runs every library at every point of s. The order is rotated with each round, so that
// each library runs first in some rounds. A run that fails is recorded, and the other runs continue
// unless ctx has ended.
func (r *report) measure(ctx context.Context, srv *server, s scenario, progress io.Writer) error {
	libs := r.options.librariesOf(s)
	for _, p := range s.points {
		rounds := make([][]result, len(libs))
		for round := range r.options.roundsOf(s) {
			for i := range libs {
				i = (i + round) % len(libs)
				if err := srv.clean(ctx); err != nil {
					return err
				}
				var rtt time.Duration
				if s.delay > 0 {
					rtt, _ = ping(ctx, srv.addr) // 0 if it fails: the error of runOnce then names the cause
				}
				program := ""
				if libs[i] == beforeName {
					program = r.options.before
				}
				cell, err := runOnce(ctx, srv, s, p, libs[i], program, newPrefix(s), r.options.window)
				switch {
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case err != nil:
					r.fail(libs[i], err)
					fmt.Fprintln(progress, err)
				default:
					fmt.Fprintf(progress, "%s %s %s: %.0f ops/s\n", s.name, p.Name, libs[i], cell.OpsPerS)
					cell.round = round
					if rtt > 0 {
						cell.Figures[pingUS] = us(rtt)
					}
					rounds[i] = append(rounds[i], cell)
				}
			}
		}
		for _, rs := range rounds {
			if len(rs) > 0 {
				r.cells = append(r.cells, medianResult(rs))
			}
		}
	}
	return nil
}

// newPrefix returns a new prefix for each run.
func newPrefix(s scenario) string { return fmt.Sprintf("bench:%d:%s:", time.Now().UnixNano(), s.name) }

// fail records a run without a result, which the report shows. If the library is not a peer, the
// program also fails.
func (r *report) fail(library string, err error) {
	r.failures = append(r.failures, err.Error())
	if l, _ := libraryNamed(library); !l.peer {
		r.broken = errors.Join(r.broken, err)
	}
}

// report has the results, with the options and the environment.
type report struct {
	options     options
	environment environment
	cells       results
	failures    []string // runs without a result
	broken      error    // those of them that make the program fail
}

func (r report) write(out io.Writer) error {
	var err error
	if r.options.json {
		enc := json.NewEncoder(out)
		for _, c := range r.cells {
			err = errors.Join(err, enc.Encode(r.cells.withRatios(c)))
		}
	} else {
		_, err = io.WriteString(out, r.text())
	}
	if r.options.md != "" {
		err = errors.Join(err, os.WriteFile(r.options.md, []byte(r.markdown()), 0o644))
	}
	if r.options.svg != "" {
		err = errors.Join(err, os.WriteFile(r.options.svg, []byte(r.chart()), 0o644))
	}
	return err
}
