// Package stage has what the example programs share, so that each of them shows only its use of
// holdfast: the command line, a Redis, Lockers, and lines with the time.
package stage

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
)

// Program is an example.
type Program struct {
	Name   string
	Flags  func(*flag.FlagSet) // adds flags to -redis, may be nil
	Memory bool                // without -redis, the locks are in the memory of the process
	Piped  bool                // the Redis inside the process has no socket, so that a test can run the program in virtual time
	Quorum bool                // -redis may be 3, 5 or 7 servers, a majority of which has the locks
	Play   func(context.Context, *Stage) error
}

// Stage is the environment of a program.
type Stage struct {
	Name   string        // random, a part of each key that the program makes
	Redis  *redis.Client // nil if the locks are in the memory of the process
	Inside bool          // Redis is inside the process
	Quorum []string      // addresses of the servers whose majority has the locks, nil: Redis has them
	Out    io.Writer     // any goroutine may write

	began   time.Time
	closers []func() error        // in the order in which their objects were opened
	options func() *redis.Options // of a client of Redis
}

// Main runs the program with the arguments of the process, and exits with 1 after an error.
func (p Program) Main() {
	redis.SetLogger(quiet{})
	ctx, stop := UntilSignal(context.Background())
	err := p.Run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		os.Exit(1)
	}
}

// UntilSignal returns a ctx that ends with Ctrl-C or SIGTERM. Its cause names the signal.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// quiet drops the log lines of go-redis: a program prints what it does with a connection.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Run runs the program. At the end it closes the Lockers, and deletes the keys that contain the
// name of the Stage.
func (p Program) Run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	where := "one inside the process"
	if p.Memory {
		where = "the memory of the process"
	}
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(stdout)
	if p.Quorum {
		where += "; 3, 5 or 7 with commas: a majority of them has the locks"
	}
	addr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else "+where)
	if p.Flags != nil {
		p.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	s := &Stage{Name: "holdfast-" + p.Name + "-" + strings.ToLower(rand.Text()[:12]), Out: &writer{w: stdout}, began: time.Now()}
	defer func() { err = errors.Join(err, s.close()) }()
	addrs := strings.Split(*addr, ",")
	if len(addrs) > 1 && !p.Quorum {
		return errors.New("-redis must be one HOST:PORT: this program has no locks on a majority of servers")
	}
	if *addr != "" || !p.Memory {
		if err := s.connect(ctx, addrs[0], p.Piped); err != nil {
			return err
		}
	}
	if len(addrs) > 1 {
		if err := s.join(ctx, addrs); err != nil {
			return err
		}
	}
	return p.Play(ctx, s)
}

// connect connects to the Redis at addr, or to one inside the process.
func (s *Stage) connect(ctx context.Context, addr string, piped bool) error {
	s.options = func() *redis.Options { return &redis.Options{Addr: addr} }
	if s.Inside = addr == ""; s.Inside {
		inside := miniredis.NewMiniRedis()
		inside.ClockTTL(true) // without it, no key would expire
		memory := pipe.NewServer(inside)
		s.closers = append(s.closers, func() error { memory.Close(); return nil })
		if piped {
			s.options = memory.Options
		} else if err := inside.Start(); err != nil {
			return err
		} else {
			addr = inside.Addr()
		}
	} else if err := checkAddr(addr); err != nil {
		return err
	}
	rdb := redis.NewClient(s.options())
	s.Redis = rdb
	s.closers = append(s.closers, rdb.Close)
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s: %w", addr, err)
	}
	s.closers = append(s.closers, func() error { return s.removeKeys(rdb) })
	return nil
}

func checkAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil || strings.ContainsAny(addr, "/@") { // it may have a password
		return errors.New("-redis must be HOST:PORT")
	}
	return nil
}

// removeKeys deletes the keys and the asynq queues of the program, also after a signal.
func (s *Stage) removeKeys(rdb *redis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	keys := rdb.Scan(ctx, 0, "*"+s.Name+"*", 1000).Iterator()
	for keys.Next(ctx) {
		errs = append(errs, rdb.Del(ctx, keys.Val()).Err())
	}
	queues, err := rdb.SMembers(ctx, "asynq:queues").Result()
	for _, q := range queues {
		if strings.HasPrefix(q, s.Name) {
			errs = append(errs, rdb.SRem(ctx, "asynq:queues", q).Err())
		}
	}
	return errors.Join(append(errs, keys.Err(), err)...)
}

// close closes what was opened, in reverse order.
func (s *Stage) close() error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Where names the Redis.
func (s *Stage) Where() string {
	if s.Inside {
		return "a Redis inside this process"
	}
	if s.Quorum != nil {
		return fmt.Sprintf("Redis at %s, with the locks on a majority of %s", s.Redis.Options().Addr, strings.Join(s.Quorum, ", "))
	}
	return "Redis at " + s.Redis.Options().Addr
}

// Say prints a line with the time since the start.
func (s *Stage) Say(format string, args ...any) {
	fmt.Fprintf(s.Out, "%6.2f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// writer lets one goroutine write at a time.
type writer struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// Sleep waits for d. If ctx ends first, it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
