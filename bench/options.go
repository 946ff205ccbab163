package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// options has the values of the flags.
type options struct {
	list      bool
	scenarios []scenario
	only      []string // names of libraries; empty: all
	window    time.Duration
	rounds    int
	redis     string
	before    string // another build of this program, whose holdfast is measured too
	keys      int    // of the scenario memory
	dir       string // of the files to write
}

const shortest = 10 * time.Millisecond

// parseOptions parses the flags. Its error contains every problem.
func parseOptions(args []string, errOut io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.BoolVar(&o.list, "list", false, "explain the scenarios and the libraries, and measure nothing")
	names := fs.String("scenario", "", "scenarios to run, separated by commas, see -list (default: all but those marked there)")
	only := fs.String("only", "", "libraries to measure, separated by commas, see -list (default: all)")
	fs.DurationVar(&o.window, "for", 3*time.Second, "duration of a run that measures speed")
	fs.IntVar(&o.rounds, "rounds", 6, "runs of each library in a scenario that measures speed, in alternating order; the tables show medians")
	fs.StringVar(&o.redis, "redis", "", "address of a Redis to use (default: start one)")
	fs.StringVar(&o.before, "before", "", "another build of this program, of an earlier commit: its holdfast is measured in turns with this one")
	fs.IntVar(&o.keys, "keys", heldKeys, "number of keys in the scenario memory")
	fs.StringVar(&o.dir, "write", "", "write RESULTS.md, FAULTS.md and chart.svg into this directory")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	var wrong []error
	picked, err := pick("scenario", *names, scenarioNames())
	wrong = append(wrong, err)
	o.only, err = pick("library", *only, slices.Concat(libraryNames(), policies, contenders, queues))
	wrong = append(wrong, err)
	if o.window < shortest {
		wrong = append(wrong, fmt.Errorf("bench: -for is %v, must be at least %v", o.window, shortest))
	}
	if o.rounds < 1 {
		wrong = append(wrong, fmt.Errorf("bench: -rounds is %d, must be at least 1", o.rounds))
	}
	if o.keys < 1 {
		wrong = append(wrong, fmt.Errorf("bench: -keys is %d, must be at least 1", o.keys))
	}
	if fs.NArg() > 0 {
		wrong = append(wrong, fmt.Errorf("bench: unexpected argument %q", fs.Arg(0)))
	}
	for _, s := range scenarios {
		if slices.Contains(picked, s.name) || len(picked) == 0 && !s.named {
			o.scenarios = append(o.scenarios, s)
		}
	}
	return o, errors.Join(wrong...)
}

// pick returns the names in list, or nil if list is empty.
func pick(what, list string, all []string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	var picked []string
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(all, name) {
			errs = append(errs, fmt.Errorf("bench: no %s %q; there are %s", what, name, strings.Join(all, ", ")))
		}
		picked = append(picked, name)
	}
	return picked, errors.Join(errs...)
}

// roundsOf returns how often each cell of s is measured.
func (o options) roundsOf(s scenario) int {
	if s.rounds > 0 {
		return min(s.rounds, o.rounds)
	}
	return o.rounds
}
