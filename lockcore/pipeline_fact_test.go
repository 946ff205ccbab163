package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/locktest"
)

// These tests are about go-redis's AutoPipeline alone, at the version that go.mod pins and with the options of pipeline.go: what batching
// relies on. When one fails after an upgrade, pipeline.go has to be looked at again.

// auto is an AutoPipeliner behind faults, on a client with the options of lockcore's own.
func auto(t *testing.T) (*redis.AutoPipeliner, *redis.Client, *locktest.Faults, *redistest.Counter) {
	t.Helper()
	faults, count := locktest.NewFaults(t), new(redistest.Counter)
	c := redistest.Real(t).Client(t, func(o *redis.Options) {
		o.Dialer = count.Dial(faults.Dial(o.Dialer))
		o.MaxRetries, o.ContextTimeoutEnabled, o.ReadTimeout = -1, true, time.Second
	})
	o := redis.DefaultAutoPipelineOptions()
	o.MaxFlushDelay = 20 * time.Microsecond
	a, err := c.AsyncAutoPipelineWithOptions(o)
	if err != nil {
		t.Fatal(err)
	}
	return a, c, faults, count
}

// incr submits one INCR for each caller and waits for all of them.
func incr(a *redis.AutoPipeliner, ctx context.Context, round int) []error { //nolint:revive // the subject comes first
	errs, _ := atOnce(func(i int) error {
		return a.Submit(ctx, redis.NewIntCmd(ctx, "incr", fmt.Sprint("n", round, ":", i))).WaitContext(ctx)
	})
	return errs
}

// With MaxRetries -1 a batch is sent once, whatever happens to its connection.
func TestAutoPipelineFact_neverSendsTwice(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for kind, plant := range faultKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a, c, faults, count := auto(t)
			rounds := 3
			for round := range rounds {
				f := plant(faults, locktest.Nth(callers/2, func(r locktest.Request) bool { return r.Name == "INCR" }))
				if errors.Join(incr(a, t.Context(), round)...) == nil {
					t.Error("the fault struck nobody")
				}
				f.Deliver()
			}
			time.Sleep(50 * time.Millisecond) // what was held is on its way
			if n := count.Count("incr"); n > rounds*callers {
				t.Errorf("%d commands for %d calls", n, rounds*callers)
			}
			for round := range rounds {
				for i := range callers {
					if n, err := c.Get(t.Context(), fmt.Sprint("n", round, ":", i)).Int(); n > 1 || err != nil && !errors.Is(err, redis.Nil) {
						t.Errorf("counted %d, %v", n, err)
					}
				}
			}
		})
	}
}

// The end of ctx ends the wait, not the command.
func TestAutoPipelineFact_ctxEndsOnlyTheWait(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	a, c, faults, _ := auto(t)
	f := faults.Hold(func(r locktest.Request) bool { return r.Name == "INCR" })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	future := a.Submit(ctx, redis.NewIntCmd(ctx, "incr", "n"))
	if err := future.WaitContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
	f.Deliver()
	if err := future.Wait(); err != nil {
		t.Error(err)
	}
	if n := c.Get(t.Context(), "n").Val(); n != "1" {
		t.Errorf("counted %q", n)
	}
}

// One batch is under way at a time, and only ReadTimeout ends one that gets no answer: so our own clients have a short one.
func TestAutoPipelineFact_readTimeoutEndsABatch(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	a, _, faults, _ := auto(t)
	control := redistest.NewControl(t)
	f := faults.LoseAnswer(func(r locktest.Request) bool { return r.Name == "INCR" })
	lost := a.Submit(t.Context(), redis.NewIntCmd(t.Context(), "incr", "n"))
	<-f.Struck()
	start := time.Now()
	next := a.Submit(t.Context(), redis.NewIntCmd(t.Context(), "incr", "m"))
	if err := next.Wait(); err != nil {
		t.Error(err)
	}
	if d, late := time.Since(start), control.Late(start); d < 700*time.Millisecond-late || d > 2*time.Second+late {
		t.Errorf("the next batch went after %v, want about the ReadTimeout of 1 s", d)
	}
	if err := lost.Wait(); err == nil {
		t.Error("the lost answer came")
	}
}

// What Redis says against one command of a batch is no matter of the others.
func TestAutoPipelineFact_errorsAreTheirCommandsOwn(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	a, c, _, _ := auto(t)
	c.Set(t.Context(), "text", "no number", 0)
	errs, _ := atOnce(func(i int) error {
		switch i % 3 {
		case 0:
			return a.Submit(t.Context(), redis.NewCmd(t.Context(), "evalsha", "0123456789012345678901234567890123456789", 0)).Wait()
		case 1:
			return a.Submit(t.Context(), redis.NewIntCmd(t.Context(), "incr", "text")).Wait()
		}
		return a.Submit(t.Context(), redis.NewIntCmd(t.Context(), "incr", "n")).Wait()
	})
	for i, err := range errs {
		switch {
		case i%3 == 0 && !redis.HasErrorPrefix(err, "NOSCRIPT"),
			i%3 == 1 && (err == nil || !strings.Contains(err.Error(), "not an integer")),
			i%3 == 2 && err != nil:
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// Close of the client answers what was submitted, refuses what comes later, and needs no Close of the AutoPipeliner.
func TestAutoPipelineFact_endsWithItsClient(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	a, c, faults, _ := auto(t)
	f := faults.Hold(func(r locktest.Request) bool { return r.Name == "INCR" })
	early := a.Submit(t.Context(), redis.NewIntCmd(t.Context(), "incr", "n"))
	<-f.Struck()
	time.AfterFunc(50*time.Millisecond, f.Deliver)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := early.Wait(); err != nil {
		t.Errorf("submitted before: %v", err)
	}
	if err := a.Submit(t.Context(), redis.NewIntCmd(t.Context(), "incr", "n")).Wait(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("submitted after: %v, want ErrClosed", err)
	}
}
