package idempotency_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

var errBoom = errors.New("boom")

// once runs fn under guard.OnceValue and then sleeps for two hours.
func once(t *testing.T, locks *lockcore.Locker, o guard.OnceOptions, fn func(context.Context) (string, error)) {
	t.Helper()
	ctx := lockcore.WithTask(t.Context(), "task-7")
	if r, err := guard.OnceValue(ctx, locks, "k", o, fn); r.Outcome == guard.NotRun {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Hour)
}

// Lookup reports each state of a key without running a handler.
func TestLookup(t *testing.T) {
	says := func(s string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return s, err }
	}
	for name, row := range map[string]struct {
		o     guard.OnceOptions
		fn    func(context.Context) (string, error)
		state lockcore.State
		kept  time.Duration
		want  idempotency.Content
	}{
		"new":    {state: lockcore.StateFree},
		"failed": {fn: says("", errBoom), state: lockcore.StateFree},
		"done": {
			fn: says("receipt", nil), state: lockcore.StateDone, kept: 22 * time.Hour,
			want: idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte(`"receipt"`)},
		},
		"final": {
			fn: says("", guard.Final(errBoom)), o: guard.OnceOptions{Keep: 3 * time.Hour}, state: lockcore.StateDone, kept: time.Hour,
			want: idempotency.Content{Ending: idempotency.Failed, Data: []byte("boom")},
		},
		"too large": {
			fn: says("receipt", nil), o: guard.OnceOptions{MaxResult: 1}, state: lockcore.StateDone, kept: 22 * time.Hour,
			want: idempotency.Content{Ending: idempotency.NotKept, Data: []byte{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := locktest.New(t)
				if row.fn != nil {
					once(t, locks, row.o, row.fn)
				}
				e, err := idempotency.Lookup(t.Context(), locks, "k")
				if err != nil || e.State != row.state || e.KeepLeft != row.kept {
					t.Errorf("%+v, %v", e, err)
				}
				if got := e.Content; got.Ending != row.want.Ending || got.Codec != row.want.Codec || string(got.Data) != string(row.want.Data) {
					t.Errorf("record %v %q %q", got.Ending, got.Codec, got.Data)
				}
				if done := row.state == lockcore.StateDone; done && (e.Holder.Task != "task-7" || e.HeldFor != 2*time.Hour || e.Attempt != 1) {
					t.Errorf("by %v, %v ago, run %d", e.Holder, e.HeldFor, e.Attempt)
				}
			})
		})
	}
}

// Lookup reports the holder of a held key and of an abandoned one. Clear refuses a held key. It
// clears an abandoned one, which then runs again.
func TestLookupAndClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		most := guard.OnceOptions{Mode: guard.AtMostOnce}
		look := func(want lockcore.State, attempt int) {
			t.Helper()
			e, err := idempotency.Lookup(t.Context(), locks, "k")
			if err != nil || e.State != want || e.Attempt != attempt || e.Content.Ending != 0 {
				t.Errorf("%+v, %v", e, err)
			}
			if attempt > 0 && (e.Holder.Task != "task-7" || e.HeldFor != time.Minute) {
				t.Errorf("by %v, %v ago", e.Holder, e.HeldFor)
			}
			if kept := want == lockcore.StateAbandoned; kept != (e.KeepLeft > 23*time.Hour) {
				t.Errorf("%s, kept for %v", want, e.KeepLeft)
			}
		}
		ctx := lockcore.WithTask(t.Context(), "task-7")
		func() {
			defer func() { _ = recover() }()
			_, _ = guard.Once(ctx, locks, "k", most, func(context.Context) error {
				time.Sleep(time.Minute)
				look(lockcore.StateHeld, 1)
				if err := clearAsSeen(t, locks, "k"); !errors.Is(err, lockcore.ErrBusy) {
					t.Errorf("cleared while it runs: %v", err)
				}
				look(lockcore.StateHeld, 1)
				panic("dies")
			})
		}()
		look(lockcore.StateAbandoned, 1)
		if _, err := guard.Once(ctx, locks, "k", most, nothing); !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("%v", err)
		}
		for range 2 { // to clear a free key is no error
			if err := clearAsSeen(t, locks, "k"); err != nil {
				t.Error(err)
			}
			look(lockcore.StateFree, 0)
		}
		for _, want := range []guard.Outcome{guard.Ran, guard.Replayed} {
			if out, err := guard.Once(ctx, locks, "k", most, nothing); err != nil || out != want {
				t.Errorf("%v, %v", out, err)
			}
		}
		if err := clearAsSeen(t, locks, "k"); err != nil { // done
			t.Error(err)
		}
		if out, err := guard.Once(ctx, locks, "k", most, nothing); err != nil || out != guard.Ran {
			t.Errorf("%v, %v", out, err)
		}
	})
}

func nothing(context.Context) error { return nil }

func clearAsSeen(t *testing.T, locks *lockcore.Locker, key string) error {
	t.Helper()
	e, err := idempotency.Lookup(t.Context(), locks, key)
	if err != nil {
		t.Fatal(err)
	}
	return idempotency.Clear(t.Context(), locks, key, e)
}

// Clear refuses if the key changed after Lookup: another run took over, failed or was abandoned, or
// the first one completed late.
func TestClearOfWhatHasChanged(t *testing.T) {
	least := lockcore.Claim{}
	for name, happen := range map[string]func(t *testing.T, locks *lockcore.Locker, first *lockcore.Lease){
		"done since": func(t *testing.T, locks *lockcore.Locker, _ *lockcore.Lease) {
			lease, _, err := locks.Claim(t.Context(), "k", least)
			if err != nil || lease.Complete(t.Context(), []byte("\x01\x03\x00\x00"), time.Hour) != nil {
				t.Fatal(err)
			}
		},
		"run since, and abandoned again": func(t *testing.T, locks *lockcore.Locker, _ *lockcore.Lease) {
			lease, _, err := locks.Claim(t.Context(), "k", least)
			if err != nil || lease.Abandon(t.Context()) != nil {
				t.Fatal(err)
			}
		},
		"failed since": func(t *testing.T, locks *lockcore.Locker, _ *lockcore.Lease) {
			lease, _, err := locks.Claim(t.Context(), "k", least)
			if err != nil || lease.Release(t.Context()) != nil {
				t.Fatal(err)
			}
		},
		"completed late": func(t *testing.T, _ *lockcore.Locker, first *lockcore.Lease) {
			if err := first.Complete(t.Context(), []byte("\x01\x03\x00\x00"), time.Hour); !errors.Is(err, lockcore.ErrLost) {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := locktest.New(t)
				first, _, err := locks.Claim(access.WithFixed(t.Context()), "k", lockcore.Claim{Terms: lockcore.Terms{Lease: time.Second}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = first.Release(t.Context()) }() // ended or not
				time.Sleep(2 * time.Second)
				seen, err := idempotency.Lookup(t.Context(), locks, "k")
				if err != nil || seen.State != lockcore.StateAbandoned {
					t.Fatalf("%+v, %v", seen, err)
				}
				happen(t, locks, first)
				before, _ := idempotency.Lookup(t.Context(), locks, "k")
				if err := idempotency.Clear(t.Context(), locks, "k", seen); !errors.Is(err, lockcore.ErrChanged) {
					t.Errorf("%v", err)
				}
				if after, err := idempotency.Lookup(t.Context(), locks, "k"); err != nil || after.State != before.State || after.Attempt != before.Attempt {
					t.Errorf("%+v, %v", after, err)
				}
			})
		})
	}
}

// For a record that does not decode, Lookup returns ErrFormat and the remaining fields.
func TestLookupBadRecord(t *testing.T) {
	for _, bad := range []string{"", "garbage", "\x02\x01\x00\x00", "\x01\x01\x00\x00"} {
		synctest.Test(t, func(t *testing.T) {
			locks := locktest.New(t)
			lease, _, err := locks.Claim(lockcore.WithTask(t.Context(), "task-7"), "k", lockcore.Claim{})
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Complete(t.Context(), []byte(bad), time.Hour); err != nil {
				t.Fatal(err)
			}
			e, err := idempotency.Lookup(t.Context(), locks, "k")
			if !errors.Is(err, idempotency.ErrFormat) || !strings.Contains(err.Error(), `"k"`) {
				t.Errorf("%q: %v", bad, err)
			}
			if e.State != lockcore.StateDone || e.Holder.Task != "task-7" || e.KeepLeft != time.Hour || e.Content.Ending != 0 {
				t.Errorf("%q: %+v", bad, e)
			}
		})
	}
}

// Lookup costs one command. Neither Lookup nor Clear affects the exclusive key of the same name.
func TestLookupCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count redistest.Counter
		o := locktest.NewServer(t).Options()
		o.Dialer = count.Dial(o.Dialer)
		rdb := redis.NewClient(o)
		defer rdb.Close()
		locks, err := lockcore.New(rdb, lockcore.Options{NoGroups: true})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(t.Context())
		locktest.Hold(t, locks, "k")()
		release := locktest.Hold(t, locks, "k")
		defer release()
		_, _ = idempotency.Lookup(t.Context(), locks, "warm")
		count.Reset()
		if e, err := idempotency.Lookup(t.Context(), locks, "k"); err != nil || e.State != lockcore.StateFree {
			t.Errorf("%+v, %v", e, err)
		}
		if sent := count.Commands(); !slices.Equal(sent, []string{"inspect"}) {
			t.Errorf("sent %v", sent)
		}
		if err := clearAsSeen(t, locks, "k"); err != nil {
			t.Error(err)
		}
		if h, err := locks.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.State != lockcore.StateHeld {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// For an invalid key and an unavailable Redis, Lookup and Clear return the errors of lockcore, and
// the status is empty.
func TestLookupErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := locktest.NewFaults(t)
		locks := locktest.NewServer(t).Locker(lockcore.Options{}, faults)
		for want, key := range map[error]string{lockcore.ErrKey: "", lockcore.ErrUnavailable: "k"} {
			if want == lockcore.ErrUnavailable { //nolint:errorlint // the row
				faults.Silence()
			}
			e, err := idempotency.Lookup(t.Context(), locks, key)
			if !errors.Is(err, want) || !reflect.DeepEqual(e.Holding, lockcore.Holding{}) || e.Content.Ending != 0 {
				t.Errorf("%+v, %v", e, err)
			}
			if err := idempotency.Clear(t.Context(), locks, key, idempotency.Status{}); !errors.Is(err, want) {
				t.Errorf("%v", err)
			}
		}
		faults.Heal()
	})
}
