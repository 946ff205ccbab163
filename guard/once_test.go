package guard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

type receipt struct {
	ID    string
	Cents int
}

// A run records a value with two commands. Later calls of both processes replay it, each with one
// command, until Keep is over.
// Shows: I9, I10, C1
func TestOnceValueReplay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		charge := func(context.Context) (receipt, error) { runs++; return receipt{"r-1", 499}, nil }
		_, _ = guard.OnceValue(t.Context(), f.locks, "warm", guard.OnceOptions{}, charge)
		f.count.Reset()
		got, err := guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{}, charge)
		if err != nil || got != (guard.Result[receipt]{Value: receipt{"r-1", 499}, Outcome: guard.Ran, Attempt: 1}) {
			t.Errorf("%+v, %v", got, err)
		}
		again, err := guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{}, charge)
		if err != nil || again.Value != got.Value || again.Outcome != guard.Replayed || again.Attempt != 1 {
			t.Errorf("%+v, %v", again, err)
		}
		if sent := f.count.Commands(); !slices.Equal(sent, []string{"acquire", "complete", "acquire"}) {
			t.Errorf("sent %v", sent)
		}
		time.Sleep(23 * time.Hour)
		if r, err := guard.OnceValue(t.Context(), f.other, "k", guard.OnceOptions{}, charge); err != nil || r.Outcome != guard.Replayed {
			t.Errorf("%+v, %v", r, err)
		}
		time.Sleep(2 * time.Hour)
		if r, err := guard.OnceValue(t.Context(), f.other, "k", guard.OnceOptions{}, charge); err != nil || r.Outcome != guard.Ran {
			t.Errorf("after Keep: %+v, %v", r, err)
		}
		if runs != 3 {
			t.Errorf("%d runs", runs)
		}
	})
}

// The first delivery fails and the redelivery runs. The key is done only after the handler has
// succeeded.
// Shows: O1
func TestOnceFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		if out, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, fails(&runs, errBoom)); err != errBoom || out != guard.Ran { //nolint:errorlint // unchanged is the point
			t.Errorf("%v, %v", out, err)
		}
		time.Sleep(2 * time.Hour)
		r, err := guard.OnceValue(t.Context(), f.other, "k", guard.OnceOptions{}, func(context.Context) (int, error) { runs++; return 7, nil })
		if err != nil || r.Outcome != guard.Ran || r.Attempt != 2 || runs != 2 {
			t.Errorf("%+v, %v, %d runs", r, err, runs)
		}
	})
}

// A handler's error with each mark, in each mode: either the next call replays it, or it runs.
// Shows: O1
func TestOnceErrors(t *testing.T) {
	for name, c := range map[string]struct {
		mode     guard.Mode
		mark     func(error) error
		replayed bool
	}{
		"at least once":            {guard.AtLeastOnce, func(err error) error { return err }, false},
		"at least once, final":     {guard.AtLeastOnce, guard.Final, true},
		"at least once, no effect": {guard.AtLeastOnce, guard.NoEffect, false},
		"at most once":             {guard.AtMostOnce, func(err error) error { return err }, true},
		"at most once, final":      {guard.AtMostOnce, guard.Final, true},
		"at most once, no effect":  {guard.AtMostOnce, guard.NoEffect, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				o, runs := guard.OnceOptions{Mode: c.mode}, 0
				if _, err := guard.Once(t.Context(), f.locks, "k", o, fails(&runs, c.mark(errBoom))); !errors.Is(err, errBoom) {
					t.Error(err)
				}
				out, err := guard.Once(t.Context(), f.other, "k", o, fails(&runs, nil))
				var recorded *guard.RecordedError
				if c.replayed != (out == guard.Replayed && errors.As(err, &recorded) && recorded.Text == "boom" && runs == 1) {
					t.Errorf("%v, %v, %d runs", out, err, runs)
				}
			})
		})
	}
}

// The handler panics, and the panic passes through Once. With AtLeastOnce the redelivery runs. With
// AtMostOnce the key is abandoned.
// Shows: O5
func TestOncePanic(t *testing.T) {
	for name, mode := range map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				o, runs := guard.OnceOptions{Mode: mode}, 0
				if v := panics(func() {
					_, _ = guard.Once(t.Context(), f.locks, "k", o, func(context.Context) error { panic("oh") })
				}); v != "oh" {
					t.Errorf("recovered %v", v)
				}
				out, err := guard.Once(t.Context(), f.other, "k", o, fails(&runs, nil))
				if mode == guard.AtLeastOnce && (err != nil || out != guard.Ran || runs != 1) {
					t.Errorf("%v, %v", out, err)
				}
				if mode == guard.AtMostOnce && (!errors.Is(err, lockcore.ErrAbandoned) || runs != 0) {
					t.Errorf("%v, %v", out, err)
				}
			})
		})
	}
}

// The handler runs longer than its ctx and its caller. Its late success is recorded, and the retry
// replays it.
// Shows: I9
func TestOnceLateSuccess(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = guard.Once(ctx, f.locks, "k", guard.OnceOptions{}, func(context.Context) error {
				runs++
				time.Sleep(4 * time.Second)
				return nil
			})
		}()
		time.Sleep(1100 * time.Millisecond) // the caller's ctx has ended, and the caller retries
		if _, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{Terms: noWait}, fails(&runs, nil)); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("ran beside the first: %v", err)
		}
		out, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{Terms: lockcore.Terms{Wait: time.Minute}}, fails(&runs, nil))
		if err != nil || out != guard.Replayed || runs != 1 {
			t.Errorf("%v, %v, %d runs", out, err, runs)
		}
	})
}

// Redis executes a command, and its reply is lost. For each command there is one run and one
// record.
func TestOnceLostReply(t *testing.T) {
	for _, script := range []string{"acquire", "complete"} {
		t.Run(script, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				runs := 0
				_, _ = guard.Once(t.Context(), f.locks, "warm", guard.OnceOptions{}, nothing)
				f.faults.LoseReply(faulty.Script(script))
				if out, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, fails(&runs, nil)); err != nil || out != guard.Ran {
					t.Errorf("%v, %v", out, err)
				}
				if out, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{}, fails(&runs, nil)); err != nil || out != guard.Replayed || runs != 1 {
					t.Errorf("%v, %v, %d runs", out, err, runs)
				}
			})
		})
	}
}

// Redis is unavailable when a run completes. The call returns within 1.1 s, and the record is
// stored when Redis is back.
// Shows: O2
func TestOnceCompletesInBackground(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		start := time.Now()
		out, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) error { f.faults.Down(); return nil })
		if err != nil || out != guard.Ran || time.Since(start) > 1100*time.Millisecond {
			t.Errorf("%v, %v after %v", out, err, time.Since(start))
		}
		time.Sleep(10 * time.Second)
		f.faults.Heal()
		if out, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{}, nothing); err != nil || out != guard.Replayed {
			t.Errorf("%v, %v", out, err)
		}
	})
}

// Redis is unavailable for a minute when a run completes. The Locker reports CompletionFailed, and
// the next call takes over.
// Shows: O2
func TestOnceCompletionLost(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		_, _ = guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) error { f.faults.Down(); return nil })
		time.Sleep(time.Minute)
		if !heard[event.CompletionFailed](f.events) {
			t.Error("no event CompletionFailed")
		}
		if out, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{}, nothing); err != nil || out != guard.TookOver {
			t.Errorf("%v, %v", out, err)
		}
	})
}

// The connections of a holder are silent until its lease expires. With AtLeastOnce the next call
// takes over. With AtMostOnce it is refused.
// Shows: O5, B1, B4
func TestOnceAbandoned(t *testing.T) {
	for name, mode := range map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				o, runs := guard.OnceOptions{Mode: mode, Terms: lockcore.Terms{Wait: time.Minute}}, 0
				var out guard.Outcome
				var err error
				_, lost := guard.Once(t.Context(), f.locks, "k", o, func(context.Context) error {
					f.faults.Silence()
					out, err = guard.Once(t.Context(), f.other, "k", o, func(ctx context.Context) error {
						runs++
						if n, tookOver := guard.Attempt(ctx, "k"); n != 2 || !tookOver {
							t.Errorf("inside: attempt %d, took over %v", n, tookOver)
						}
						return nil
					})
					return nil
				})
				if !errors.Is(lost, lockcore.ErrLost) {
					t.Errorf("the silent holder: %v", lost)
				}
				if mode == guard.AtLeastOnce && (err != nil || out != guard.TookOver || runs != 1) {
					t.Errorf("%v, %v", out, err)
				}
				if mode == guard.AtMostOnce && (!errors.Is(err, lockcore.ErrAbandoned) || out != guard.NotRun || runs != 0) {
					t.Errorf("%v, %v", out, err)
				}
			})
		})
	}
}

// A call with another fingerprint is refused at once, while the key runs and when it is done. An
// empty fingerprint is not compared.
// Shows: O6
func TestOnceFingerprint(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		mine := guard.OnceOptions{Fingerprint: idempotency.Fingerprint(nil, []byte("a"))}
		theirs := guard.OnceOptions{Fingerprint: idempotency.Fingerprint(nil, []byte("b")), Terms: lockcore.Terms{Wait: time.Hour}}
		check := func(done bool) {
			t.Helper()
			start := time.Now()
			_, err := guard.Once(t.Context(), f.other, "k", theirs, nothing)
			var mismatch *lockcore.MismatchError
			if !errors.As(err, &mismatch) || mismatch.Done != done || time.Since(start) > 0 {
				t.Errorf("done %v: %v after %v", done, err, time.Since(start))
			}
		}
		_, _ = guard.Once(t.Context(), f.locks, "k", mine, func(context.Context) error { check(false); return nil })
		check(true)
		for _, o := range []guard.OnceOptions{mine, {}} {
			if out, err := guard.Once(t.Context(), f.other, "k", o, nothing); err != nil || out != guard.Replayed {
				t.Errorf("%v, %v", out, err)
			}
		}
	})
}

// A result that is too large, or cannot be encoded, is not kept. The key is done and does not run
// again.
// Shows: O9
func TestOnceNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		big := func(context.Context) (string, error) { return strings.Repeat("x", 300<<10), nil }
		r, err := guard.OnceValue(t.Context(), f.locks, "big", guard.OnceOptions{}, big)
		if err != nil || len(r.Value) != 300<<10 || !r.NotKept || r.Outcome != guard.Ran {
			t.Errorf("%d bytes, %+v, %v", len(r.Value), r.Outcome, err)
		}
		r, err = guard.OnceValue(t.Context(), f.other, "big", guard.OnceOptions{}, big)
		if !errors.Is(err, guard.ErrNoResult) || errors.Is(err, lockcore.ErrNotRun) || r.Value != "" || !r.NotKept || r.Outcome != guard.Replayed {
			t.Errorf("%+v, %v", r, err)
		}
		odd := func(context.Context) (any, error) { return func() {}, nil }
		if r, err := guard.OnceValue(t.Context(), f.locks, "odd", guard.OnceOptions{}, odd); err == nil || r.Outcome != guard.Ran {
			t.Errorf("%v, %v", r.Outcome, err)
		}
		if r, err := guard.OnceValue(t.Context(), f.other, "odd", guard.OnceOptions{}, odd); !errors.Is(err, guard.ErrNoResult) || !r.NotKept {
			t.Errorf("%v, %v", r.Outcome, err)
		}
		if out, err := guard.Once(t.Context(), f.other, "big", guard.OnceOptions{}, nothing); err != nil || out != guard.Replayed {
			t.Errorf("Once needs no value: %v, %v", out, err)
		}
	})
}

// A record cannot be decoded. The call returns ErrRecord, the Locker reports BadRecord, and the
// handler does not run.
// Shows: O9
func TestOnceBadRecord(t *testing.T) {
	for name, spoil := range map[string]string{"empty": "", "garbage": "\xff\x00garbage", "other version": "\x02\x01\x00\x00", "wrong JSON": "\x01\x01\x04json\x01{", "other codec": "\x01\x01\x05bytes\x00"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				run := func(context.Context) (receipt, error) { return receipt{}, nil }
				_, _ = guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{}, run)
				f.memory.Unfold("holdfast:2:o:{k}")
				f.memory.Redis.HSet("holdfast:2:o:{k}", "r", spoil)
				r, err := guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{}, run)
				if r.Outcome != guard.NotRun || !errors.Is(err, lockcore.ErrRecord) || !errors.Is(err, lockcore.ErrNotRun) {
					t.Errorf("%v, %v", r.Outcome, err)
				}
				if !heard[event.BadRecord](f.events) {
					t.Error("no event BadRecord")
				}
			})
		})
	}
}

// A Once of a key inside itself returns ErrNested at once. Inside an Exclusive of the same name it
// runs, because that is another key.
func TestOnceNested(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		_ = guard.Exclusive(t.Context(), f.locks, "k", noWait, func(ctx context.Context) error {
			_, err := guard.Once(ctx, f.locks, "k", guard.OnceOptions{}, func(ctx context.Context) error {
				if _, err := guard.Once(ctx, f.locks, "k", guard.OnceOptions{}, nothing); !errors.Is(err, lockcore.ErrNested) {
					t.Errorf("%v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			return err
		})
	})
}

type nasty struct{}

func (nasty) MarshalJSON() ([]byte, error) { panic("nil pointer") }

// The encoder of a result panics. The result counts as one that cannot be encoded: the call returns
// an error, the key is done, and it is not held.
func TestOnceCodecPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		r, err := guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) (nasty, error) { return nasty{}, nil })
		if err == nil || !strings.Contains(err.Error(), "nil pointer") || r.Outcome != guard.Ran {
			t.Errorf("%v, %v", r.Outcome, err)
		}
		if h, err := f.other.Inspect(t.Context(), event.KindOnce, "k"); err != nil || h.State != lockcore.StateDone {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// With ReportOnly a done key replays a call with another fingerprint, and reports PayloadDiffers
// each time. Records of final failures and of results that were not kept are compared too. Records
// without a fingerprint are not compared.
// Shows: O7
func TestOnceReportOnly(t *testing.T) {
	type run struct {
		fingerprint string
		reportOnly  bool
		events      int // the number of events after this run
		mismatch    bool
	}
	for name, row := range map[string]struct {
		err  error
		max  int
		runs []run
	}{
		"done":     {nil, 0, []run{{"a", true, 0, false}, {"a", true, 0, false}, {"b", true, 1, false}, {"b", true, 2, false}, {"", true, 2, false}, {"b", false, 2, false}}},
		"failed":   {guard.Final(errBoom), 0, []run{{"a", true, 0, false}, {"b", true, 1, false}}},
		"not kept": {nil, 1, []run{{"a", true, 0, false}, {"b", true, 1, false}}},
		"refused":  {nil, 0, []run{{"a", false, 0, false}, {"b", true, 0, false}, {"b", false, 0, true}}},
		"none":     {nil, 0, []run{{"", true, 0, false}, {"b", true, 0, false}}},
	} {
		inBubble(t, func(t *testing.T, f *fixture) {
			ran := 0
			for i, r := range row.runs {
				o := guard.OnceOptions{Terms: lockcore.Terms{Name: "charge"}, Fingerprint: []byte(r.fingerprint), ReportOnly: r.reportOnly, MaxResult: row.max}
				_, err := guard.OnceValue(t.Context(), f.locks, "charge:7", o, func(context.Context) (string, error) {
					ran++
					return "receipt", row.err
				})
				if errors.Is(err, lockcore.ErrMismatch) != r.mismatch {
					t.Errorf("%s %d: %v, want a mismatch: %v", name, i, err, r.mismatch)
				}
				events := locktest.EventsOf[event.PayloadDiffers](f.events)
				for _, e := range events {
					if want := (event.PayloadDiffers{Name: "charge", Key: "charge:7"}); e != want {
						t.Errorf("%s %d: event %+v, want %+v", name, i, e, want)
					}
				}
				if len(events) != r.events {
					t.Errorf("%s %d: %d events, want %d", name, i, len(events), r.events)
				}
			}
			if ran != 1 {
				t.Errorf("%s: %d runs, want 1", name, ran)
			}
		})
	}
}
