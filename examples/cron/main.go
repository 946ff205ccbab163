// Command cron shows how three instances with different clocks run one job. First they use a lock
// on the job's name, which is not enough. Then they use package cronmw. Finally the instance that
// runs a tick is disconnected in the middle of that tick.
//
//	go run ./examples/cron                        on a Redis inside the process
//	go run ./examples/cron -redis localhost:6379  on your Redis; it removes the keys that it makes
//
// It takes half a minute, checks its own numbers, and exits with 1 if they are not as expected.
// Read story.go first.
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

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("cron", flag.ContinueOnError)
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
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		if !c.right(r) {
			return fmt.Errorf("%s: unexpected result %+v, want %s", c.title, r, c.want)
		}
		r.name = c.title
		rows = append(rows, r)
	}
	s.say("")
	return table(stdout, rows)
}

// row is the result of a chapter.
type row struct {
	name                   string
	ticks, runs, takeovers int
	most                   int // runs of one tick
}

func table(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "\tticks\truns\tmost a tick\ttaken over")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", r.name, r.ticks, r.runs, r.most, r.takeovers)
	}
	return t.Flush()
}
