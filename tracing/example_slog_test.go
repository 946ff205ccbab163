package tracing_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// slogObserver is a lockcore.Observer for programs without OpenTelemetry: a line for what ends a call, and for what
// somebody should look at. It is meant to be copied.
type slogObserver struct{ log *slog.Logger }

type slogKey struct{}

// Start leaves in ctx what the lines of this call have in common. The key stays out of the log: it may name people.
func (o slogObserver) Start(ctx context.Context, a lockcore.Attempt) context.Context {
	return context.WithValue(ctx, slogKey{}, o.log.With("kind", a.Kind, "name", a.Name))
}

func (o slogObserver) Event(ctx context.Context, e lockcore.Event) {
	l, ok := ctx.Value(slogKey{}).(*slog.Logger)
	if !ok {
		l = o.log // reported by a package above, or a pass of renewals
	}
	switch e := e.(type) {
	case lockcore.Waiting:
		l.DebugContext(ctx, "waiting", "queue", e.Queue, "holder", e.Holder.String())
	case lockcore.Granted:
		l.DebugContext(ctx, "granted", "waited", e.Waited, "token", e.Token, "attempt", e.Attempt, "takeover", e.Abandoned)
	case lockcore.Refused:
		l.InfoContext(ctx, "refused", "waited", e.Waited, "why", why(e.Err))
	case lockcore.Replayed:
		l.InfoContext(ctx, "replayed", "waited", e.Waited, "attempt", e.Attempt)
	case lockcore.Released:
		switch {
		case e.Lost != nil:
			l.ErrorContext(ctx, "ran, but the lease was lost", "held", e.Held, "cause", e.Lost)
		case e.Abandoned:
			l.ErrorContext(ctx, "ran, and its outcome is unknown", "held", e.Held)
		default:
			l.InfoContext(ctx, "ran", "held", e.Held, "renewals", e.Renewals)
		}
	case lockcore.RenewFailed:
		l.WarnContext(ctx, "renewal got no answer", "err", e.Err)
	case lockcore.Overrun:
		l.WarnContext(ctx, "handler runs on although its context has ended", "cause", e.Cause)
	case lockcore.CompletionFailed:
		l.ErrorContext(ctx, "record could not be stored", "err", e.Err)
	case lockcore.ConflictLost:
		l.ErrorContext(ctx, "conflict on the last attempt", "name", e.Name, "holder", e.Holder.String())
	case lockcore.NoKey:
		l.WarnContext(ctx, "job has no key", "name", e.Name)
	case lockcore.PayloadDiffers:
		l.WarnContext(ctx, "done key called with another payload", "name", e.Name)
	case lockcore.Misconfigured:
		l.ErrorContext(ctx, "misconfigured", "problem", e.Problem)
	case lockcore.BadRecord:
		l.ErrorContext(ctx, "stored record does not decode", "err", e.Err)
	}
}

// why is the class of a refusal. Its text has the key in it.
func why(err error) error {
	for _, class := range []error{
		lockcore.ErrBusy, lockcore.ErrMismatch, lockcore.ErrAbandoned, lockcore.ErrRecord, lockcore.ErrClosed, lockcore.ErrUnavailable,
	} {
		if errors.Is(err, class) {
			return class
		}
	}
	return lockcore.ErrNotRun // the caller gave up first
}

// Traceparent is where a holder could leave any one-line mark for those who wait.
func (slogObserver) Traceparent(context.Context) string { return "" }

// Without OpenTelemetry an Observer of 60 lines tells a logger the same.
func Example_slog() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes})
	locks, err := lockcore.New(rdb, lockcore.Options{Observer: slogObserver{slog.New(handler)}})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	terms := lockcore.Terms{Name: "account", Wait: lockcore.NoWait}
	_ = guard.Exclusive(context.Background(), locks, "account:42", terms, func(ctx context.Context) error {
		// On a context without the hold this is another caller.
		_ = guard.Exclusive(guard.Detach(ctx), locks, "account:42", terms, func(context.Context) error { return nil })
		return nil
	})
	// Output:
	// level=INFO msg=refused kind=exclusive name=account why="lockcore: busy"
	// level=INFO msg=ran kind=exclusive name=account renewals=0
}

// withoutTimes makes the output of the example the same each time.
func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Value.Kind() == slog.KindDuration {
		return slog.Attr{}
	}
	return a
}
