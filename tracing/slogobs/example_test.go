package slogobs_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing/slogobs"
)

// A call that is refused has a record.
func ExampleNew() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes})) // in production: slog.Default()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: slogobs.New(logger, slogobs.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	terms := lockcore.Terms{Name: "account", Wait: lockcore.NoWait}
	_ = guard.Exclusive(context.Background(), locks, "account:42", terms, func(ctx context.Context) error {
		// The call is not nested, because its ctx does not carry the hold.
		_ = guard.Exclusive(guard.Detach(ctx), locks, "account:42", terms, func(context.Context) error { return nil })
		return nil
	})
	// Output:
	// level=INFO msg="holdfast: refused" kind=exclusive name=account key_digest=38dbcc9b3c91186a outcome=busy queue=0
}

// withoutTimes removes the attributes that differ from run to run.
func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || strings.Contains(a.Key, "holder") || a.Key == "locker" || a.Value.Kind() == slog.KindDuration {
		return slog.Attr{}
	}
	return a
}
