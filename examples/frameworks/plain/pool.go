// Package plain shows the guards in programs without a framework: a pool of goroutines, and a
// consumer of a message broker.
package plain

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Transfer is a job of a pool.
type Transfer struct{ Account, Amount int }

// Work is one worker of a pool. While it books a transfer, no other worker of any process books one
// of the same account. done gets the error of each transfer. Put back a transfer that did not run
// (lockcore.ErrNotRun).
func Work(ctx context.Context, locks *lockcore.Locker, jobs <-chan Transfer, book func(context.Context, Transfer) error, done func(Transfer, error)) {
	terms := lockcore.Terms{Name: "account", Wait: time.Minute}
	for job := range jobs {
		done(job, guard.Exclusive(ctx, locks, fmt.Sprint("account:", job.Account), terms, func(ctx context.Context) error { return book(ctx, job) }))
	}
}
