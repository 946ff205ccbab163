package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/inspect/asynqtasks"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// serve serves the page of package inspect until ctx ends.
func (sh *shell) serve(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("serve", "")
	listen := f.String("listen", "localhost:8321", "`host:port` to listen on")
	act := f.Bool("act", false, "let everyone who reaches the page revoke, clear, wake, pause and limit keys; beyond this machine only with -behind-proxy")
	proxy := f.String("behind-proxy", "", "`name` of the page in a proxy in front, such as ops.example. The proxy authenticates users, and sets X-Forwarded-User or X-Forwarded-For, which the log has")
	traces := f.String("trace-url", "", "`URL` of a trace, with {trace_id}")
	if err := parse(f, args, 0); err != nil {
		return exitFailed, err
	}
	host, _, err := net.SplitHostPort(*listen)
	switch {
	case err != nil:
		return exitFailed, fmt.Errorf("-listen is %q, must be host:port: %w", *listen, err)
	case *act && *proxy == "" && !loopback(host):
		return exitFailed, fmt.Errorf("-act with -listen %s: everyone who reaches that address could revoke holds. Put a proxy in front that authenticates users, and pass -behind-proxy NAME", *listen)
	}
	o := inspect.Options{TraceURL: *traces, HTTPKey: sh.httpKey, Audit: sh.audit}
	if *act {
		o.Allow = func(*http.Request) error { return nil }
	}
	if *proxy != "" {
		o.Actor = func(r *http.Request) string {
			for _, name := range []string{"X-Forwarded-User", "X-Forwarded-For"} {
				if who := r.Header.Get(name); who != "" {
					return who
				}
			}
			return r.RemoteAddr
		}
	}
	if err := o.Validate(); err != nil {
		return exitFailed, err
	}
	tasks, closeTasks, err := sh.tasks(t)
	if err != nil {
		return exitFailed, t.explain(err)
	}
	defer closeTasks()
	o.Tasks = tasks
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		if _, err := l.Inspect(ctx, kindOf(false), "holdfast"); err != nil { // a wrong address must not show with the first page
			return exitFailed, err
		}
		page := onlyHost(host, *proxy, inspect.New(l, o))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
		if err != nil {
			return exitFailed, err
		}
		fmt.Fprintf(sh.out, "http://%s/\n", listener.Addr())
		srv := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
		failed := make(chan error, 1)
		go func() { failed <- srv.Serve(listener) }() // ends with Shutdown or Close
		select {
		case err := <-failed:
			return exitFailed, err
		case <-ctx.Done():
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second) // for an action under way; Shutdown ends the streams
		defer cancel()
		if srv.Shutdown(ending) != nil {
			_ = srv.Close()
		}
		return exitOK, nil
	})
}

// audit prints an action.
func (sh *shell) audit(_ context.Context, a inspect.Action) {
	result := "done"
	if a.Err != nil {
		result = "failed: " + a.Err.Error()
	}
	if a.Details != "" {
		a.Verb += " " + a.Details
	}
	fmt.Fprintf(sh.err, "%s %s: %s %s %s: %s\n", a.Time.UTC().Format(time.RFC3339), operator.OneLine(a.Actor), operator.OneLine(a.Verb), a.Kind, operator.OneLine(a.Key), operator.OneLine(result))
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// onlyHost refuses requests for another host than the one that it listens on, this machine or the name in
// the proxy: a web page elsewhere could make its own name an address of this machine, and then read the
// answers, and act past the proxy.
func onlyHost(host, proxy string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if h, _, err := net.SplitHostPort(r.Host); err == nil {
			name = h
		}
		if name = strings.Trim(name, "[]"); !loopback(name) && !strings.EqualFold(name, host) && (proxy == "" || !strings.EqualFold(name, proxy)) {
			ip := net.ParseIP(host)
			if any := host == "" || ip != nil && ip.IsUnspecified(); !any || net.ParseIP(name) == nil {
				http.Error(w, fmt.Sprintf("this page is not %q: use its address, or holdfast serve -behind-proxy %[1]s", name), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// httpKey returns the key of an HTTP request under httpmw.Idempotent.
func (sh *shell) httpKey(scope, method, path, key string) (string, error) {
	var o httpmw.IdempotentOptions
	if secret := sh.getenv("HOLDFAST_HTTP_SECRET"); secret != "" {
		o.Secret = []byte(secret)
	}
	return o.KeyOf(scope, method, path, key)
}

// tasks returns a function that finds asynq tasks in the same Redis, or nil on a majority of servers or
// in a database.
func (sh *shell) tasks(t *target) (find func(context.Context, string) ([]operator.Task, error), closeClient func(), err error) {
	if t.quorum || sh.dsn(t) != "" {
		return nil, func() {}, nil
	}
	rdb, err := t.client(sh.getenv)
	if err != nil {
		return nil, func() {}, err
	}
	byID := asynqtasks.Find(asynq.NewInspectorFromRedisClient(rdb))
	return func(ctx context.Context, id string) ([]operator.Task, error) {
		found, err := byID(ctx, id)
		if err != nil && strings.Contains(err.Error(), "NOPERM") { // the user may read holdfast's keys only
			err = operator.ErrNotSearched
		}
		return found, err
	}, func() { _ = rdb.Close() }, nil
}

// why explains why a task or the calls of a key wait.
func (sh *shell) why(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("why", " TASK-ID | KEY | IDEMPOTENCY-KEY")
	scope := f.String("scope", "", "of an HTTP request: see holdfast key -h")
	method := f.String("method", "POST", "of an HTTP request: its method")
	path := f.String("path", "", "of an HTTP request: its path as it was sent: escaped, without the query")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	subject := f.Arg(0)
	if (*scope == "") != (*path == "") {
		return exitFailed, errors.New("-scope and -path go together: both for an HTTP request, none for a task or key")
	}
	if *scope != "" {
		var err error
		if subject, err = sh.httpKey(*scope, *method, *path, subject); err != nil {
			return exitFailed, err
		}
	}
	find, closeTasks, err := sh.tasks(t)
	if err != nil {
		return exitFailed, t.explain(err)
	}
	defer closeTasks()
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		var walkErr error
		e, err := operator.Why(ctx, l, subject, find, func(match func(*operator.Key) bool) (keys []operator.Key) {
			keys, walkErr = operator.Matching(ctx, l, match)
			return keys
		})
		if err = errtext.Join(err, walkErr); err != nil {
			return exitFailed, err
		}
		code := exitOK
		if len(e.Tasks)+len(e.Keys) == 0 || e.Similar {
			code = exitProblem
		}
		if *asJSON {
			return code, sh.print(e.JSON())
		}
		if fmt.Fprintln(sh.out, e.Answer); e.Similar {
			return code, nil
		}
		for i := range e.Keys {
			fmt.Fprintln(sh.out)
			if err := describe(sh.out, e.Keys[i]); err != nil {
				return exitFailed, err
			}
		}
		return code, nil
	})
}

// watch prints a key whenever it changes, until ctx ends.
func (sh *shell) watch(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("watch", " KEY")
	once := f.Bool("once", false, "a key of Once, not of Exclusive")
	every := durationFlag(f, "every", time.Second, "how often to look, at least 100ms")
	asJSON := f.Bool("json", false, "print JSON, an object each time")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	if *every < 100*time.Millisecond {
		return exitFailed, fmt.Errorf("-every is %v, must be at least 100ms", *every)
	}
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		last := ""
		for {
			k, err := operator.Inspect(ctx, l, kindOf(*once), f.Arg(0), false)
			if ctx.Err() != nil {
				return exitOK, nil //nolint:nilerr // the user has ended it
			}
			if err != nil {
				return exitFailed, err
			}
			if now := fmt.Sprint(k.State, k.Token, k.Holder, k.Queue, k.Parked, k.Revoked, k.PauseReason, k.Restriction.Reason, k.Weights); now != last {
				last = now
				if *asJSON {
					err = sh.printKeys("", k)
				} else {
					_, err = fmt.Fprintf(sh.out, "%s  %s\n", time.Now().Format(time.TimeOnly), k.Explain())
				}
				if err != nil {
					return exitFailed, err
				}
			}
			select {
			case <-time.After(*every):
			case <-ctx.Done():
				return exitOK, nil
			}
		}
	})
}
