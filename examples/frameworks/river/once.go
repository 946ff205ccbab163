// Package river shows guard.Once in a worker of River.
package river

import (
	"context"
	"errors"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// WithOnce makes the workers of a configuration run each job once.
func WithOnce(locks *lockcore.Locker, config *river.Config) {
	config.Middleware = append(config.Middleware, &once{locks: locks}) // a pointer: a value is no middleware
}

type once struct {
	river.MiddlewareDefaults

	locks *lockcore.Locker
}

func (o *once) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	_, err := guard.Once(ctx, o.locks, fmt.Sprint("river:", job.Kind, "/", job.ID), guard.OnceOptions{}, doInner)
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return river.JobSnooze(busy.RetryAfter()) // an error would use up an attempt
	}
	return err
}
