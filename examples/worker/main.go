// Command worker shows on a real asynq server why holdfast exists. A handler outlives its deadline,
// first without and then with holdfast. Two workers take turns on one account. One hot account has
// many tasks. A payment is sent twice.
//
//	go run ./examples/worker                        on a Redis inside the process
//	go run ./examples/worker -redis localhost:6379  on your Redis; it removes the keys that it makes
//
// It checks its own numbers, and exits with 1 if they are not as expected. Read story.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := tell(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func tell(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else one inside the process")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	s, err := newStage(ctx, *addr, stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	var rows []row
	for i, c := range chapters {
		s.say("")
		s.say("%d. %s", i+1, c.title)
		r, err := c.tell(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		if !c.right(r) {
			return fmt.Errorf("%s: unexpected result: %d runs, %d at once, %v; want %s", c.title, r.runs, r.most, r.state, c.want)
		}
		r.name = c.title
		rows = append(rows, r)
	}
	s.say("")
	return table(stdout, rows)
}

// row is the result of a chapter.
type row struct {
	name       string
	runs, most int
	state      string
}

func table(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "\truns\tmost at once\tfinal state")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", r.name, r.runs, r.most, r.state)
	}
	return t.Flush()
}
