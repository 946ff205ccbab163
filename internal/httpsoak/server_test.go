package httpsoak_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// mount is one way in which the handler is guarded.
type mount struct {
	path string
	most bool // at most once
	wait time.Duration
}

var (
	orders  = mount{path: "/orders", wait: 10 * time.Second}              // longer than a lease
	payouts = mount{path: "/payouts", wait: 10 * time.Second, most: true} // a run that was killed is never repeated
	quick   = mount{path: "/quick", wait: 50 * time.Millisecond}          // the second request is refused
)

func (m mount) options() httpmw.IdempotentOptions {
	o := httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: m.wait}}
	if m.most {
		o.Mode = guard.AtMostOnce
	}
	return o
}

// task is the task of a server process. It ends with its standard input.
type task struct {
	Name, Redis, Addr, Journal string
	Longest                    time.Duration // of a rare run
}

// server is one process.
type server struct {
	task
	*journal
	doomed
	locks *lockcore.Locker
}

// serve serves until its standard input ends.
func serve(t task, in *bufio.Scanner) (err error) {
	s := &server{task: t}
	if s.journal, err = openJournal(s.Journal, s.Name); err != nil {
		return err
	}
	s.doomed.journal = s.journal
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis})
	s.locks, err = lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Lease: lease}, Observer: observer{s}})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.Addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with Shutdown
	watching, stopWatch := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); s.watch(watching, rdb) }()
	chaos.WriteLine(os.Stdout, "ready")
	in.Scan() // until the test closes it, or has ended
	stopWatch()
	<-watched
	s.end(srv, rdb)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		s.fault("serve", err)
	}
	s.fault("goroutines left", goleak.Find())
	return nil
}

func (s *server) end(srv *http.Server, rdb *redis.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	for _, err := range []error{srv.Shutdown(ctx), s.locks.Close(ctx), rdb.Close()} {
		s.fault("end", err)
	}
}

// watch writes down how late this process and Redis are when the machine is busy with other work.
func (s *server) watch(ctx context.Context, rdb *redis.Client) {
	for ctx.Err() == nil {
		begin := time.Now()
		work(ctx, tick)
		_ = rdb.Ping(ctx).Err()
		if late := time.Since(begin) - tick; late > tick {
			s.write(line{Op: opLate, Late: late})
		}
	}
}

const tick = 50 * time.Millisecond

func (s *server) fault(what string, err error) {
	if err != nil {
		s.write(line{Op: opFault, Text: what + ": " + err.Error()})
	}
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /die", &s.doomed)
	scope := func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	for _, m := range []mount{orders, payouts, quick} {
		once := httpmw.Idempotent(s.locks, scope, m.options())(&run{s, m})
		mux.Handle("POST "+m.path, &front{s, m, once})
	}
	return mux
}

// front is in front of httpmw. It passes the client's key to the Observer, and may kill the process
// as soon as the handler's answer comes out.
type front struct {
	s *server
	m mount
	http.Handler
}

type clientKey struct{}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithValue(r.Context(), clientKey{}, keyAt{f.m.path, r.Header.Get(httpmw.HeaderKey)})
	f.Handler.ServeHTTP(&door{ResponseWriter: w, f: f}, r.WithContext(ctx))
}

// keyAt is a client's key under a mount.
type keyAt struct{ path, key string }

// door writes the answers. An answer that is not a replay occurs once in the life of a key.
type door struct {
	http.ResponseWriter
	f     *front
	fresh bool
}

func (d *door) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *door) WriteHeader(status int) {
	d.fresh = status == http.StatusCreated && d.Header().Get(httpmw.HeaderReplayed) == ""
	if d.fresh {
		d.f.s.mayDie(atRecorded, d.f.m.path)
	}
	d.ResponseWriter.WriteHeader(status)
}

func (d *door) Write(p []byte) (int, error) {
	n, err := d.ResponseWriter.Write(p)
	if d.fresh {
		d.f.s.dieAfter(atSent, d.f.m.path, func() { _ = http.NewResponseController(d.ResponseWriter).Flush() })
	}
	return n, err
}

// observer writes down the grants of keys, and events that must not occur.
type observer struct{ s *server }

func (o observer) Start(ctx context.Context, _ lockcore.Acquisition) context.Context { return ctx }
func (o observer) Traceparent(context.Context) string                                { return "" }

func (o observer) Event(ctx context.Context, e lockcore.Event) {
	at, _ := ctx.Value(clientKey{}).(keyAt)
	switch e := e.(type) {
	case lockcore.Granted:
		o.s.write(line{Op: opGranted, Key: at.key, Attempt: e.Attempt, TookOver: e.Abandoned})
		o.s.mayDie(atGranted, at.path)
	case lockcore.Lost:
		o.s.write(line{Op: opFault, Key: at.key, Text: "lease lost: " + e.Cause.Error()})
	case lockcore.CompletionFailed:
		o.s.write(line{Op: opFault, Key: at.key, Text: "completion failed: " + e.Err.Error()})
	case lockcore.BadRecord:
		o.s.write(line{Op: opFault, Key: at.key, Text: "bad record: " + e.Err.Error()})
	}
}
