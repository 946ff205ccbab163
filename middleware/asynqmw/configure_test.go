package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Configure calls the user's functions for all errors except conflicts. Where the user has set
// none, asynq's defaults apply.
func TestConfigureComposes(t *testing.T) {
	type ctxKey struct{}
	busy := fmt.Errorf("wrapped: %w", &lockcore.BusyError{Key: "k", HeldFor: 8 * time.Second, Remaining: 20 * time.Second})
	var c complaints
	cfg := asynqmw.Configure(asynqmw.Configure(asynq.Config{
		Concurrency:    7,
		IsFailure:      func(err error) bool { return !errors.Is(err, errBoom) },
		RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Hour },
		ErrorHandler:   &c,
		BaseContext:    func() context.Context { return context.WithValue(t.Context(), ctxKey{}, "mine") },
	}))
	if cfg.Concurrency != 7 || cfg.BaseContext().Value(ctxKey{}) != "mine" {
		t.Error("Configure changed Concurrency or BaseContext")
	}
	if cfg.IsFailure(busy) || cfg.IsFailure(errBoom) || !cfg.IsFailure(errors.New("other")) {
		t.Error("IsFailure: want false for a conflict, false for errBoom by the user's function, true for others")
	}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := cfg.RetryDelayFunc(3, busy, nil)
		low, high = min(low, d), max(high, d)
	}
	if low < 6*time.Second || high > 10*time.Second || high-low < 3*time.Second {
		t.Errorf("delays of a conflict from %v to %v, want 8 s ± 25 %%", low, high)
	}
	for _, tt := range []struct {
		busy      lockcore.BusyError
		low, high time.Duration
	}{
		{lockcore.BusyError{PauseReason: "429", Remaining: 8 * time.Second}, 8 * time.Second, 10 * time.Second},
		{lockcore.BusyError{PauseReason: "429", Remaining: 30 * time.Minute}, time.Minute, 70 * time.Second},
		{lockcore.BusyError{Exact: true, Remaining: 3 * time.Hour}, time.Minute, 70 * time.Second},
	} {
		for range 1000 {
			if d := cfg.RetryDelayFunc(3, &tt.busy, nil); d < tt.low || d > tt.high {
				t.Fatalf("delay %v, want %v to %v: %v", d, tt.low, tt.high, &tt.busy)
			}
		}
	}
	if d := cfg.RetryDelayFunc(3, errBoom, nil); d != 3*time.Hour {
		t.Errorf("delay %v, want the user's", d)
	}
	for _, err := range []error{busy, fmt.Errorf("%w: %w", busy, asynq.RevokeTask), errBoom, asynq.RevokeTask} {
		cfg.ErrorHandler.HandleError(t.Context(), nil, err)
	}
	if got := c.all(); len(got) != 2 || !errors.Is(got[0], errBoom) || !errors.Is(got[1], asynq.RevokeTask) || errors.Is(got[1], lockcore.ErrBusy) {
		t.Errorf("ErrorHandler got %v, want the two errors that are no conflicts", got)
	}

	cfg = asynqmw.Configure(asynq.Config{})
	if cfg.ErrorHandler != nil || cfg.IsFailure(nil) || !cfg.IsFailure(errBoom) || cfg.RetryDelayFunc(0, errBoom, nil) < 15*time.Second {
		t.Error("the defaults are not those of asynq")
	}
}

// A server has no Configure. Each middleware whose policy needs it reports Misconfigured once, with
// the consequence. With Configure there is no event.
func TestConfigureMissing(t *testing.T) {
	for busy, want := range map[asynqmw.ConflictPolicy]string{
		asynqmw.RetryLater: "uses up a retry", asynqmw.Drop: "ErrorHandler is called", asynqmw.Skip: "", asynqmw.Fail: "",
	} {
		for _, configured := range []bool{false, true} {
			inBubble(t, func(w *world) {
				cfg := quick()
				if configured {
					cfg = asynqmw.Configure(cfg)
				}
				var g gauge
				w.serve(cfg, asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Busy: busy})(g.handler(nothing)))
				for range 3 {
					w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
				}
				got := locktest.EventsOf[event.Misconfigured](w.heard)
				switch {
				case configured || want == "":
					if len(got) != 0 {
						w.Errorf("%v, configured %v: events %+v", busy, configured, got)
					}
				case len(got) != 1 || !strings.Contains(got[0].Problem, "Configure") || !strings.Contains(got[0].Problem, want):
					w.Errorf("%v: events %+v, want one with %q", busy, got, want)
				}
			})
		}
	}
}

// Without Configure a conflict uses up a retry, and the error that asynq stores has the reason.
func TestConfigureMissingCosts(t *testing.T) {
	inBubble(t, func(w *world) {
		w.hold("test:7")
		var g gauge
		w.serve(quick(), asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: noWait})(g.handler(nothing)))
		info := w.until(w.enqueue("charge", "7"), func(i *asynq.TaskInfo) bool { return i.Retried > 0 })
		if !strings.Contains(info.LastErr, "Configure was not used") || !strings.Contains(info.LastErr, "the-holder") {
			w.Errorf("last error %q", info.LastErr)
		}
	})
}
