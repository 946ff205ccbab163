package slogobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing/slogobs"
)

const canary = "iban-DE02-7f3a"

var charge = event.Acquisition{Kind: event.KindOnce, Name: "charge", Key: canary}

// events has one event of each type, with the level and the message of its record. The text of each
// error contains the key.
var events = []struct {
	event   event.Event
	level   string
	message string
}{
	{event.Waiting{Holder: event.Holder{Host: "h", Task: "t"}, Queue: 2}, "DEBUG", "waiting"},
	{event.Granted{Token: 7}, "DEBUG", "granted"},
	{event.Granted{Abandoned: true}, "WARN", "took over"},
	{event.Refused{Err: &lockcore.BusyError{Key: canary}}, "INFO", "refused"},
	{event.Refused{Err: lockcore.ErrClosed}, "INFO", "refused"},
	{event.Refused{Err: fmt.Errorf("%w: %w", lockcore.ErrNotRun, context.Canceled)}, "DEBUG", "refused"},
	{event.Refused{Err: &lockcore.MismatchError{Key: canary}}, "WARN", "refused"},
	{event.Refused{Err: &lockcore.AbandonedError{Key: canary}}, "ERROR", "refused"},
	{event.Refused{Err: fmt.Errorf("%w: OOM %s", lockcore.ErrUnavailable, canary)}, "ERROR", "refused"},
	{event.Refused{Err: fmt.Errorf("%w: %q", lockcore.ErrRecord, canary)}, "ERROR", "refused"},
	{event.Replayed{Attempt: 1}, "DEBUG", "replayed"},
	{event.RenewFailed{Err: fmt.Errorf("%w: %q", lockcore.ErrUnavailable, canary)}, "WARN", "renewal failed"},
	{event.Lost{Cause: lockcore.ErrLost}, "ERROR", "lease lost"},
	{event.Lost{Cause: lockcore.ErrMaxHold}, "WARN", "lease ended early"},
	{event.Overrun{Cause: lockcore.ErrMaxHold}, "WARN", "handler ignores its context"},
	{event.Released{}, "DEBUG", "released"},
	{event.Released{Lost: lockcore.ErrLost}, "DEBUG", "released"},
	{event.Released{Abandoned: true}, "ERROR", "outcome unknown"},
	{event.Released{Failed: errors.New(canary)}, "DEBUG", "handler failed"},
	{event.Released{Failed: &lockcore.BusyError{Key: canary}}, "DEBUG", "released"},
	{event.Released{Failed: &lockcore.BusyError{Key: canary}, Completed: true}, "DEBUG", "handler failed"},
	{event.Released{Err: lockcore.ErrUnavailable}, "INFO", "release failed"},
	{event.Released{Err: lockcore.ErrUnavailable, Completed: true}, "DEBUG", "released"},
	{event.CompletionFailed{Err: lockcore.ErrUnavailable}, "ERROR", "record not stored"},
	{event.CompletionStored{}, "INFO", "record stored late"},
	{event.ConflictLost{Name: "charge"}, "ERROR", "job lost to a conflict"},
	{event.NoKey{Name: "charge"}, "WARN", "no key or limit"},
	{event.PayloadDiffers{Name: "charge", Key: canary}, "WARN", "another payload"},
	{event.TickAbandoned{Name: "charge", Key: canary, Holder: event.Holder{Host: "db7"}}, "ERROR", "tick abandoned"},
	{event.Parked{Name: "charge", Kind: event.KindOnce, Key: canary, Count: 2, Delay: time.Minute}, "DEBUG", "parked"},
	{event.Unparked{Name: "charge", Kind: event.KindOnce, Key: canary, Parked: time.Minute}, "DEBUG", "unparked"},
	{event.Replaced{Name: "charge", Key: canary}, "DEBUG", "replaced"},
	{event.RerunSkipped{Name: "charge", Kind: event.KindOnce, Key: canary, Completed: time.Second}, "WARN", "rerun skipped"},
	{event.CleanupFailed{N: 2, Err: fmt.Errorf("%w: %q", lockcore.ErrUnavailable, canary)}, "WARN", "cleanup failed"},
	{event.ServerFailed{Server: "10.0.0.1:6379", Err: fmt.Errorf("%w: %q", lockcore.ErrUnavailable, canary)}, "WARN", "server failed"},
	{event.ServerRecovered{Server: "10.0.0.1:6379"}, "INFO", "server replies again"},
	{event.ForceCleared{Kind: event.KindOnce, Key: canary, Token: 7, EvenAlive: true}, "WARN", "lease ended by force"},
	{event.Paused{Key: canary, For: time.Minute, Reason: "full"}, "INFO", "paused"},
	{event.Paused{Key: canary}, "INFO", "pause ended"},
	{event.Restricted{Key: canary, Limit: 2, For: time.Minute, Reason: "slow"}, "INFO", "restricted"},
	{event.Restricted{Key: canary}, "INFO", "restriction ended"},
	{event.Misconfigured{Problem: "no Configure"}, "ERROR", "misconfigured"},
	{event.BadRecord{Err: fmt.Errorf("%w: %q", lockcore.ErrRecord, canary)}, "ERROR", "record does not decode"},
}

func logger(w *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Each event has one record with the right level. The key is in a record only if ExposeRawKeys is
// set.
func TestRecords(t *testing.T) {
	for _, expose := range []bool{false, true} {
		for _, tt := range events {
			var out bytes.Buffer
			o := slogobs.New(logger(&out), slogobs.Options{ExposeRawKeys: expose})
			ctx := o.Start(t.Context(), charge)
			o.Event(ctx, tt.event)
			var record map[string]any
			if err := json.Unmarshal(out.Bytes(), &record); err != nil {
				t.Fatalf("%T: %v: %q", tt.event, err, out.String())
			}
			if record["level"] != tt.level || record["msg"] != "holdfast: "+tt.message || record["name"] != "charge" && record["problem"] == nil && record["leases"] == nil && record["even_alive"] == nil && record["server"] == nil && record["for"] == nil {
				t.Errorf("%+v: %v", tt.event, record)
			}
			if !expose && strings.Contains(out.String(), canary) {
				t.Errorf("%T: the key is in %s", tt.event, out.String())
			}
			if expose && record["kind"] != nil && record["key"] != canary {
				t.Errorf("%T: the key is not in %s", tt.event, out.String())
			}
		}
	}
}

// The records of Parked and Unparked contain all fields of the event.
func TestParkedTasks(t *testing.T) {
	for _, tt := range []struct {
		event event.Event
		want  map[string]any
	}{
		{
			event.Parked{Name: "account", Kind: event.KindExclusive, Key: "account:42", Again: true, Before: 1, Count: 3, Oldest: 4, Delay: 5},
			map[string]any{"level": "DEBUG", "msg": "holdfast: parked", "again": true, "before": 1.0, "tasks": 3.0, "oldest": 4.0, "delay": 5.0},
		},
		{
			event.Unparked{Name: "account", Kind: event.KindExclusive, Key: "account:42", Parked: 6, Count: 3, Oldest: 4},
			map[string]any{"level": "DEBUG", "msg": "holdfast: unparked", "parked": 6.0, "tasks": 3.0, "oldest": 4.0},
		},
	} {
		var out bytes.Buffer
		slogobs.New(logger(&out), slogobs.Options{}).Event(t.Context(), tt.event)
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "time")
		maps.Copy(tt.want, map[string]any{"kind": "exclusive", "name": "account", "key_digest": "38dbcc9b3c91186a"})
		if !maps.Equal(got, tt.want) {
			t.Errorf("%T: %v, want %v", tt.event, got, tt.want)
		}
	}
}

// A record with a holder names the Locker of the holder and that of the call, if they are known.
// Other records name no Locker.
func TestLockersBesideTheHolder(t *testing.T) {
	const own, other = "0b6c6d3e-8f7a-4f0e-9a34-5f0a4a0f3c11", "c3a1b7e4-51d0-4d0c-8a52-0d7a8c6f9b22"
	h := event.Holder{Locker: other, Host: "db7", PID: 1}
	for _, tt := range []struct {
		event             event.Event
		holder, of, maker any
	}{
		{event.Waiting{Holder: h}, "db7/1", other, own},
		{event.Refused{Err: &lockcore.BusyError{Holder: h}}, "db7/1", other, own},
		{event.Refused{Err: &lockcore.AbandonedError{Holder: h}}, "db7/1", other, own},
		{event.Refused{Err: &lockcore.BusyError{}}, nil, nil, nil},
		{event.ConflictLost{Holder: h}, "db7/1", other, nil},
		{event.TickAbandoned{Holder: event.Holder{Host: "db7", PID: 1}}, "db7/1", nil, nil},
		{event.ForceCleared{Holder: h}, "db7/1", other, nil},
		{event.Granted{Token: 7}, nil, nil, nil},
	} {
		var out bytes.Buffer
		o := slogobs.New(logger(&out), slogobs.Options{})
		ctx := o.Start(t.Context(), event.Acquisition{Kind: event.KindOnce, Key: canary, Backend: "redis", Locker: own})
		o.Event(ctx, tt.event)
		var record map[string]any
		if err := json.Unmarshal(out.Bytes(), &record); err != nil {
			t.Fatalf("%T: %v: %q", tt.event, err, out.String())
		}
		if record["holder"] != tt.holder || record["holder_locker"] != tt.of || record["locker"] != tt.maker {
			t.Errorf("%+v: %v, want holder %v of %v, locker %v", tt.event, record, tt.holder, tt.of, tt.maker)
		}
	}
}

// Outside of a call only events that need none are written, and of an error only its class.
func TestWithoutACall(t *testing.T) {
	var out bytes.Buffer
	o := slogobs.New(logger(&out), slogobs.Options{})
	for _, e := range []event.Event{nil, event.RenewPass{Failed: 3}, event.Granted{}, event.Released{}, event.Refused{}} {
		o.Event(t.Context(), e)
	}
	if out.Len() != 0 {
		t.Errorf("written: %s", out.String())
	}
	o.Event(t.Context(), event.BadRecord{Err: fmt.Errorf("%w: %q", lockcore.ErrRecord, canary)})
	if s := out.String(); strings.Contains(s, canary) || !strings.Contains(s, "bad_record") {
		t.Errorf("written: %s", s)
	}
}

// Of ten thousand events in a second ten are written. The next record says how many were omitted.
// Another class is not affected.
func TestNoiseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := slogobs.New(logger(&out), slogobs.Options{})
		ctx := o.Start(t.Context(), charge)
		for range 10_000 {
			o.Event(ctx, event.RenewFailed{Err: lockcore.ErrUnavailable})
		}
		if n := strings.Count(out.String(), "\n"); n != 10 {
			t.Errorf("%d records, want 10", n)
		}
		other := o.Start(t.Context(), event.Acquisition{Name: "report"})
		o.Event(other, event.RenewFailed{Err: lockcore.ErrUnavailable})
		time.Sleep(time.Second)
		out.Reset()
		o.Event(ctx, event.RenewFailed{Err: lockcore.ErrUnavailable})
		if !strings.Contains(out.String(), `"suppressed":9990`) {
			t.Errorf("after a second: %s", out.String())
		}
	})
}

// A program that only needs slog does not link OpenTelemetry.
func TestImports(t *testing.T) {
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(deps), "opentelemetry") || !strings.Contains(string(deps), "holdfast/lockcore") {
		t.Errorf("imports:\n%s", deps)
	}
}
