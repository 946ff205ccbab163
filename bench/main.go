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
		os.Exit(2)
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
	var cells results
	for _, s := range o.scenarios {
		more, err := runScenario(ctx, srv, o, s, progress)
		if err != nil {
			return err
		}
		cells = append(cells, more...)
	}
	r := report{options: o, cells: cells, environment: newEnvironment(srv.version(ctx))}
	if err := r.write(out); err != nil {
		return err
	}
	return cells.violated()
}

// runScenario measures every library at every point, in an order that is rotated with each round: no library always
// runs after the same other one.
func runScenario(ctx context.Context, srv *server, o options, s scenario, progress io.Writer) (results, error) {
	libs := o.librariesOf(s)
	var cells results
	for _, p := range s.points {
		rounds := make([][]result, len(libs))
		for round := range o.roundsOf(s) {
			for i := range libs {
				i = (i + round) % len(libs)
				prefix := fmt.Sprintf("bench:%d:%s:", time.Now().UnixNano(), s.name)
				r, err := runOnce(ctx, srv, s, p, libs[i], prefix, o.window)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(progress, "%s %s %s: %.0f ops/s\n", s.name, p.Name, libs[i], r.OpsPerS)
				rounds[i] = append(rounds[i], r)
			}
		}
		for _, rs := range rounds {
			cells = append(cells, medianResult(rs))
		}
	}
	return cells, nil
}

// report is what has been measured, and how.
type report struct {
	options     options
	cells       results
	environment environment
}

func (r report) write(out io.Writer) error {
	var err error
	if r.options.json {
		enc := json.NewEncoder(out)
		for _, c := range r.cells {
			err = errors.Join(err, enc.Encode(c))
		}
	} else {
		_, err = io.WriteString(out, r.text())
	}
	if r.options.md != "" {
		err = errors.Join(err, os.WriteFile(r.options.md, []byte(r.markdown()), 0o644))
	}
	if r.options.svg != "" {
		err = errors.Join(err, os.WriteFile(r.options.svg, []byte(chart(r.cells)), 0o644))
	}
	return err
}
