package asynqmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Parking makes tasks wait for a busy key outside of the workers, see [Configure].
type Parking struct {
	// Inspector finds and wakes parked tasks. It must use the Redis of the asynq server, and must
	// stay open until the Lockers are closed. Required.
	Inspector *asynq.Inspector
	// Deployment names the Redis of the asynq server. If asynq servers with different Redis servers
	// share keys, give each Redis its own name. At most 128 bytes. Default: "".
	Deployment string
}

// Validate reports every problem of p at once.
func (p Parking) Validate() error {
	var errs []error
	if p.Inspector == nil {
		errs = append(errs, errors.New("asynqmw: Parking.Inspector is nil, must be an Inspector of the server's Redis"))
	}
	if len(p.Deployment) > maxDeployment {
		errs = append(errs, fmt.Errorf("asynqmw: Parking.Deployment is %d bytes long, must be at most %d", len(p.Deployment), maxDeployment))
	}
	return errtext.Join(errs...)
}

const maxDeployment = 128

func newParking(cfg asynq.Config, o Parking) *parking.Pool {
	if err := o.Validate(); err != nil {
		panic(errtext.Prefix("asynqmw: Configure", err).Error())
	}
	workers := cfg.Concurrency
	if workers < 1 {
		workers = runtime.NumCPU() // as asynq does
	}
	return parking.New(parking.Options{
		Inspector: o.Inspector, Deployment: o.Deployment, Workers: workers,
		Check: cmp.Or(max(cfg.TaskCheckInterval, 0), time.Second), Delay: cmp.Or(max(cfg.DelayedTaskCheckInterval, 0), 5*time.Second),
	})
}

// parkable returns the delivery of ctx, or nil if tasks are never parked: without Parking, or under
// another ConflictPolicy than RetryLater.
func (d *decorator) parkable(ctx context.Context, kind backend.Kind, keys []string, terms lockcore.Terms) *parking.Delivery {
	p, _ := ctx.Value(configuredKey{}).(*parking.Pool)
	id, ok := asynq.GetTaskID(ctx)
	if p == nil || !ok || d.busy != RetryLater {
		return nil
	}
	queue, _ := asynq.GetQueueName(ctx)
	return p.Delivery(ctx, parking.Request{
		Locks: d.locks, Kind: kind, Keys: keys, Terms: terms, Queue: queue, ID: id, Last: lastAttempt(ctx), Mean: &d.mean,
	})
}
