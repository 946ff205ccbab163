// Command flow calls the API of a partner for three tenants. The partner allows 5 calls at a time and
// 20 in any second, and sometimes answers 429 with Retry-After. One tenant, flood, has queued more
// calls than the others. Each call changes the state from which an index is rebuilt.
//
//	go run ./examples/flow                        on a Redis inside the process
//	go run ./examples/flow -redis localhost:6379  on your Redis; it removes the keys that it makes
//
// It takes eight seconds, and prints what the partner counted and how the index was rebuilt. It
// exits with 1 if one of the printed numbers is not as expected. This file has all that a program
// needs. partner.go is the API, story.go starts everything, and picture.go draws and judges it.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() { program.Main() }

var program = stage.Program{Name: "flow", Piped: true, Play: func(ctx context.Context, s *stage.Stage) error {
	return play(ctx, s, loopback)
}}

// What the partner allows.
const (
	atOnce    = 5
	perSecond = 20
)

// ofPartner is the limit of all calls together. Redis counts when it lets a call begin, and the
// partner when the call arrives, up to 100 ms later. So the calls of a second at the partner may
// have begun in 1.1 s: at most 17*1.1 + 2, rounded down to 20.
var ofPartner = lockcore.Limit{N: atOnce, Rate: lockcore.Rate{N: 17, Burst: 2}}

// ofTenant is the limit of each tenant. So no tenant has more than 3 of the 5 calls.
var ofTenant = lockcore.Limit{N: 3}

// tenants in the order in which their calls are queued.
var tenants = []tenant{{"flood", 40, 1}, {"paying", 30, 3}, {"small", 14, 1}}

type tenant struct {
	name   string
	calls  int
	weight int
}

// weight is the Weight of Parking. While all tenants have parked tasks, paying gets three times as
// many runs as each of the others, up to its limit of 3 calls.
func weight(k guard.Key) int {
	for _, t := range tenants {
		if k.ID == t.name {
			return t.weight
		}
	}
	return 1
}

// worker is one of two processes.
type worker struct {
	*story
	locks *lockcore.Locker
}

// server returns the configuration and the handlers of the process. A call whose tenant has no permit
// left is parked on the key of its tenant, so the workers are for all tenants. The partner's limit is
// inside of the handler, see asynqmw.LimitedAll for the reason.
func (w *worker) server(cfg asynq.Config) (asynq.Config, asynq.Handler) {
	byTenant := asynqmw.Limited(w.locks, asynqmw.ByJSON("tenant", "/tenant"), ofTenant, asynqmw.ShareOptions{})
	newest := asynqmw.Latest(w.locks, asynqmw.ByType(), asynqmw.LatestOptions{})
	mux := asynq.NewServeMux()
	mux.Handle("call", byTenant(asynq.HandlerFunc(w.call)))
	mux.Handle("rebuild", newest(asynq.HandlerFunc(w.rebuild)))
	return asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: w.inspector, Weight: weight}), mux
}

// call calls the partner when its limit allows it, also after a pause.
func (w *worker) call(ctx context.Context, t *asynq.Task) error {
	terms := lockcore.Terms{Name: "partner", Wait: time.Minute}
	return guard.Limited(ctx, w.locks, "partner:acme", ofPartner, terms, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(t.Payload()))
		if err != nil {
			return err
		}
		res, err := w.http.Do(r)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if d, ok := httpmw.RetryAfter(res); ok { // no process calls the partner for d, and the task comes back
			return guard.Paused(fmt.Errorf("partner: %s", res.Status), d)
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("partner: %s", res.Status)
		}
		w.state.change()
		// The task has a new ID: with one ID for all, asynq would refuse it during a rebuild.
		_, err = w.client.EnqueueContext(ctx, asynq.NewTask("rebuild", nil), w.options...)
		return err
	})
}

// rebuild makes the index from all changes, and takes 200 ms.
func (w *worker) rebuild(ctx context.Context, _ *asynq.Task) error {
	defer w.state.rebuild()()
	return stage.Sleep(ctx, 200*time.Millisecond)
}
