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
	scenarios []scenario
	only      []string // names of libraries
	window    time.Duration
	rounds    int
	redis     string
	before    string // another build of this program, whose holdfast is measured too
	keys      int    // of the scenario memory
	json      bool
	svg, md   string
}

const shortest = 10 * time.Millisecond

// parseOptions parses the flags. Its error contains every problem.
func parseOptions(args []string, errOut io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errOut)
	names := fs.String("scenario", "", "scenarios, separated by commas: "+strings.Join(scenarioNames(), ", ")+" (default all but memory and those with a delay)")
	only := fs.String("only", "", "libraries, separated by commas: "+strings.Join(libraryNames(), ", ")+" (default all)")
	fs.DurationVar(&o.window, "for", 3*time.Second, "duration of each measurement (hold 7 times, hold100k 4 times, wait 2 times as long; partition 30 s, lost-answer 20 s)")
	fs.IntVar(&o.rounds, "rounds", 6, "number of runs of each library of a scenario, in alternating order; the tables show medians, and the 95 % interval of ratios (hold, hold100k, wait, commands, memory and the scenarios with faults: once)")
	fs.StringVar(&o.redis, "redis", "", "address of a Redis to use (default: start one)")
	fs.StringVar(&o.before, "before", "", "another build of this program, of an earlier commit: its holdfast is measured beside this one in the scenarios for all libraries")
	fs.IntVar(&o.keys, "keys", memoryKeys, "number of keys in the scenario memory")
	fs.BoolVar(&o.json, "json", false, "print one JSON object a line instead of tables")
	fs.StringVar(&o.svg, "svg", "", "write a chart to this file")
	fs.StringVar(&o.md, "md", "", "write the tables as Markdown to this file")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	picked, err1 := pick("scenario", *names, scenarioNames())
	only2, err2 := pick("library", *only, libraryNames())
	if only2 == nil {
		only2 = libraryNames()
	}
	var err3, err4, err5, err6 error
	if o.window < shortest {
		err3 = fmt.Errorf("bench: -for is %v, must be at least %v", o.window, shortest)
	}
	if o.rounds < 1 {
		err4 = fmt.Errorf("bench: -rounds is %d, must be at least 1", o.rounds)
	}
	if o.keys < 1 {
		err6 = fmt.Errorf("bench: -keys is %d, must be at least 1", o.keys)
	}
	if fs.NArg() > 0 {
		err5 = fmt.Errorf("bench: unexpected argument %q", fs.Arg(0))
	}
	for _, s := range scenarios {
		if s.memory() {
			s.points = slices.Clone(s.points)
			s.points[0].Workers = o.keys
		}
		if s.selected(picked) {
			o.scenarios = append(o.scenarios, s)
		}
	}
	o.only = only2
	return o, errors.Join(err1, err2, err3, err4, err5, err6)
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

// librariesOf returns the libraries of s that -only allows.
func (o options) librariesOf(s scenario) []string {
	var names []string
	for _, name := range namesFor(s) {
		public, _, _ := strings.Cut(name, "+")
		if (s.has(name) || name == beforeName && o.before != "" && s.compares()) && slices.Contains(o.only, public) {
			names = append(names, name)
		}
	}
	return names
}

func namesFor(s scenario) []string {
	var names []string
	for _, c := range contenders {
		names = append(names, c.name)
	}
	if !s.faults() {
		names = nil
		for _, l := range libraries {
			names = append(names, l.name)
		}
	}
	return names
}

// roundsOf returns how often each cell of s is measured.
func (o options) roundsOf(s scenario) int {
	if s.single {
		return 1
	}
	return o.rounds
}

// onlyFaults reports whether all scenarios are those with faults.
func (o options) onlyFaults() bool {
	return !slices.ContainsFunc(o.scenarios, func(s scenario) bool { return !s.faults() })
}

// estimate returns about how long the whole run takes.
func (o options) estimate() time.Duration {
	var all time.Duration
	for _, s := range o.scenarios {
		if s.faults() {
			all += s.fixed + 5*time.Second // to start them all at once, and for the rehearsal
			continue
		}
		for _, p := range s.points {
			one := s.window(o.window) + p.warmTime(o.window) + 400*time.Millisecond // to start and end the processes
			switch p.Kind {
			case holdKind:
				one += time.Duration(p.Workers) * 150 * time.Microsecond // to acquire them
			case waitKind:
				one += settle
			case hotKind:
				one += hotSettle
			case memoryKind:
				one = 10*time.Second + time.Duration(p.Workers)*100*time.Microsecond // to acquire and to release them
			default:
			}
			all += one * time.Duration(o.roundsOf(s)*len(o.librariesOf(s)))
		}
	}
	return all.Round(time.Second)
}
