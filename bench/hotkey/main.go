package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getenv(workerEnv) != "" {
		fmt.Fprintln(os.Stderr, work(os.Stdin, os.Stdout))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := hotkey(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options has the values of the flags.
type options struct {
	table    string
	load     load
	policies []string
	rounds   int
	factor   float64 // see load.limit
	minutes  float64 // of the soak
}

var tables = []string{"load", "marks", "holds", "backlog", "soak"}

func parseOptions(args []string, errOut io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("hotkey", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&o.table, "table", "load", strings.Join(tables, ", ")+": load is what the flags below describe")
	policies := fs.String("policy", "", "none, wait and park, separated by commas (default: those of the table)")
	fs.IntVar(&o.rounds, "rounds", 0, "number of runs of all policies, in alternating order (default: marks 3, else 1)")
	fs.Float64Var(&o.factor, "limit", 2.5, "a run ends at this multiple of its least possible time, but not before 1 min")
	fs.Float64Var(&o.minutes, "minutes", 10, "duration of the faults in the soak")
	l := &o.load
	fs.IntVar(&l.procs, "procs", 1, "worker processes (soak: 3)")
	fs.IntVar(&l.workers, "workers", 10, "asynq workers in each process")
	fs.DurationVar(&l.check, "check", 100*time.Millisecond, "TaskCheckInterval; asynq's default is 1s")
	fs.IntVar(&l.hot, "hot", 1, "hot accounts")
	fs.IntVar(&l.hotTasks, "hot-tasks", 200, "tasks of all hot accounts together")
	fs.IntVar(&l.others, "others", 200, "other accounts, with one task each")
	fs.DurationVar(&l.hold, "hold", 50*time.Millisecond, "duration of a handler; of other accounts at most 50ms")
	fs.IntVar(&l.backlog, "backlog", 0, "tasks of further accounts behind the load, which take 5ms each")
	fs.BoolVar(&l.standing, "standing", false, "replace each backlog task that ends, so that the backlog stays")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	if *policies != "" {
		o.policies = strings.Split(*policies, ",")
	}
	return o, o.validate(fs.Args())
}

func (o options) validate(rest []string) (err error) {
	if !slices.Contains(tables, o.table) {
		err = fmt.Errorf("hotkey: -table is %q, must be one of %s", o.table, strings.Join(tables, ", "))
	}
	for _, p := range o.policies {
		if p != policyNone && p != policyWait && p != policyPark {
			err = errors.Join(err, fmt.Errorf("hotkey: -policy has %q, must be %s, %s or %s", p, policyNone, policyWait, policyPark))
		}
	}
	if l := o.load; min(l.procs, l.workers, l.hot, l.hotTasks/max(l.hot, 1), l.others) < 1 || l.hold <= 0 || l.check <= 0 {
		err = errors.Join(err, errors.New("hotkey: each number of a load must be at least 1, and each hot account needs a task"))
	}
	if len(rest) > 0 {
		err = errors.Join(err, fmt.Errorf("hotkey: unexpected argument %q", rest[0]))
	}
	return err
}

// plan returns the loads of the table, without their policies, and the default policies and rounds.
func (o options) plan() (loads []load, policies []string, rounds int) {
	l := o.load
	switch o.table {
	case "marks":
		for _, l.procs = range []int{1, 3} {
			for _, l.check = range []time.Duration{100 * time.Millisecond, time.Second} {
				loads = append(loads, l)
			}
		}
		return loads, []string{policyNone, policyWait, policyPark}, 3
	case "holds":
		for _, l.hold = range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 2 * time.Second} {
			for _, l.hot = range []int{1, 3, 20} {
				// The work of the hot accounts alone, at the same time, takes at most 40 s.
				l.hotTasks, l.others = min(200, int(40*time.Second/l.hold)*min(l.hot, l.workers)), 1000-l.hot
				loads = append(loads, l)
			}
		}
	case "backlog":
		l.backlog = 5000
		for _, l.standing = range []bool{false, true} {
			loads = append(loads, l)
		}
	default:
		return []load{l}, []string{policyNone, policyWait, policyPark}, 1
	}
	return loads, []string{policyWait, policyPark}, 1
}

func hotkey(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	r, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	version := r.info(ctx, r.locks, "redis_version")
	before := environment(version)
	if o.table == "soak" {
		return r.soak(ctx, o, out, progress)
	}
	all, err := r.runAll(ctx, o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Before: %s.\n\nAfter: %s.\n%s", before, environment(version), figures(all))
	if s := markSheet(all); len(s.rows) > 0 {
		fmt.Fprint(out, s)
	}
	for _, rs := range all {
		err = errors.Join(err, rs.check())
	}
	return err
}

// runAll runs every load of the table under every policy, in an order that changes with each round.
func (r *rig) runAll(ctx context.Context, o options, progress io.Writer) (all []rounds, err error) {
	loads, policies, n := o.plan()
	if o.policies != nil {
		policies = o.policies
	}
	if o.rounds > 0 {
		n = o.rounds
	}
	for _, l := range loads {
		l.otherHold = min(l.hold, 50*time.Millisecond)
		of := make([]rounds, len(policies))
		for round := range n {
			for i := range policies {
				i = (i + round) % len(policies)
				l.policy = policies[i]
				res, err := r.run(ctx, l, l.limit(o.factor))
				if err != nil {
					return nil, err
				}
				of[i] = append(of[i], res)
				one := rounds{res}
				fmt.Fprintf(progress, "%s: others %s, hot accounts %s; %.2f deliveries, %.1f commands, %s\n",
					l, one.othersTime(), one.hotTime(), res.delivered, res.sent, res.faults)
			}
		}
		all = append(all, of...)
	}
	return all, nil
}
