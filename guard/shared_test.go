package guard_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// 50 calls of one process wait for the same run. They get its result without a command, and each
// gets a separate copy of the value.
func TestOnceShared(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		const n = 50
		runs, results := 0, make([]guard.Result[[]string], n)
		_, _ = guard.Once(t.Context(), f.locks, "warm", guard.OnceOptions{}, nothing)
		f.count.Reset()
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				var err error
				results[i], err = guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) ([]string, error) {
					runs++
					time.Sleep(900 * time.Millisecond)
					return []string{"a", "b"}, nil
				})
				if err != nil || !slices.Equal(results[i].Value, []string{"a", "b"}) {
					t.Errorf("%+v, %v", results[i], err)
					return
				}
				results[i].Value[0] = "mine" // must not change the value of another call
			})
		}
		wg.Wait()
		replayed := 0
		for _, r := range results {
			if r.Outcome == guard.Replayed && r.Attempt == 1 {
				replayed++
			}
		}
		if sent := f.count.Commands(); runs != 1 || replayed != n-1 || !slices.Equal(sent, []string{"acquire", "complete"}) {
			t.Errorf("%d runs, %d replayed, sent %v", runs, replayed, sent)
		}
	})
}

// Calls of one process wait for a run, and it fails. They do not share its error: the next of them
// runs.
func TestOnceSharedFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		var failed atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) error {
					runs++
					time.Sleep(100 * time.Millisecond)
					if runs < 3 {
						return errBoom
					}
					return nil
				})
				if errors.Is(err, errBoom) {
					failed.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs != 3 || failed.Load() != 2 {
			t.Errorf("%d runs, %d failed", runs, failed.Load())
		}
	})
}

// The error of an abandoned key has the holder and the time since the end of its hold. After Clear
// the key runs again.
func TestOnceAbandonedSays(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		o := guard.OnceOptions{Mode: guard.AtMostOnce}
		ctx := lockcore.WithTask(t.Context(), "charge-7")
		_ = panics(func() {
			_, _ = guard.Once(ctx, f.locks, "k", o, func(context.Context) error { panic("out of memory") })
		})
		time.Sleep(3 * time.Hour)
		_, err := guard.Once(t.Context(), f.other, "k", o, nothing)
		var abandoned *lockcore.AbandonedError
		if !errors.As(err, &abandoned) {
			t.Fatal(err)
		}
		if h := abandoned.Holder; h.Host == "" || h.PID == 0 || h.Task != "charge-7" || abandoned.HeldFor != 3*time.Hour || abandoned.Attempt != 1 {
			t.Errorf("%+v", abandoned)
		}
		if text := err.Error(); !strings.Contains(text, "3h0m0s ago") || !strings.Contains(text, `task "charge-7"`) {
			t.Errorf("the error text is %q", text)
		}
		if err := f.other.Clear(t.Context(), event.KindOnce, "k"); err != nil {
			t.Fatal(err)
		}
		if out, err := guard.Once(t.Context(), f.other, "k", o, nothing); err != nil || out != guard.Ran {
			t.Errorf("%v, %v", out, err)
		}
	})
}

// A handler that ends its goroutine has the same effect as one that panics.
func TestOnceGoexit(t *testing.T) {
	for name, mode := range map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				o := guard.OnceOptions{Mode: mode}
				var wg sync.WaitGroup
				wg.Go(func() {
					_, _ = guard.Once(t.Context(), f.locks, "k", o, func(context.Context) error { runtime.Goexit(); return nil })
				})
				wg.Wait()
				out, err := guard.Once(t.Context(), f.other, "k", o, nothing)
				if mode == guard.AtLeastOnce && (err != nil || out != guard.Ran) || mode == guard.AtMostOnce && !errors.Is(err, lockcore.ErrAbandoned) {
					t.Errorf("%v, %v", out, err)
				}
			})
		})
	}
}

// brittle is a codec whose Decode panics after its first call in the process. With that call,
// OnceValue checks the type of the result.
type brittle struct{}

var decoded atomic.Bool

func (brittle) Name() string               { return "brittle" }
func (brittle) Encode(any) ([]byte, error) { return []byte{1}, nil }
func (brittle) Decode([]byte, any) error {
	if decoded.Swap(true) {
		panic("index out of range")
	}
	return nil
}

// The codec panics on a record. Each call that waited gets ErrRecord, and the key is done and not
// held.
func TestOnceDecodePanics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		o := guard.OnceOptions{Codec: brittle{}}
		run := func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil }
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				r, err := guard.OnceValue(t.Context(), f.locks, "k", o, run)
				if r.Outcome == guard.Ran && err == nil {
					return
				}
				if !errors.Is(err, lockcore.ErrRecord) || !strings.Contains(err.Error(), "index out of range") {
					t.Errorf("%v, %v", r.Outcome, err)
				}
			})
		}
		wg.Wait()
		if h, err := f.other.Inspect(t.Context(), event.KindOnce, "k"); err != nil || h.State != lockcore.StateDone {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// nameless is a codec without a name, so that no call could decode its records.
type nameless struct{ brittle }

func (nameless) Name() string { return "" }

// The name of a codec is not valid. The call is refused before the handler runs, so no result is
// lost.
func TestOnceCodecName(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		_, err := guard.OnceValue(t.Context(), f.locks, "k", guard.OnceOptions{Codec: nameless{}}, func(context.Context) (int, error) { runs++; return 0, nil })
		if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "OnceOptions.Codec") || runs != 0 {
			t.Errorf("%v, %d runs", err, runs)
		}
	})
}

// The text of a recorded error is cut to at most 4 KiB, between two characters.
func TestOnceErrorText(t *testing.T) {
	for _, pad := range []string{"", "x", "xx", "xxx"} {
		inBubble(t, func(t *testing.T, f *fixture) {
			long := errors.New(pad + strings.Repeat("🔒", 2000))
			_, _ = guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) error { return guard.Final(long) })
			_, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{}, nothing)
			if text := err.Error(); len(text) > 4<<10 || len(text) <= 4<<10-4 || !utf8.ValidString(text) || !strings.HasPrefix(long.Error(), text) {
				t.Errorf("%d bytes, valid: %v", len(text), utf8.ValidString(text))
			}
		})
	}
}

// Unknown leaves the key abandoned.
func TestOnceUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		for range 2 {
			out, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, fails(&runs, guard.Unknown(errBoom)))
			if !errors.Is(err, errBoom) || out == guard.NotRun {
				t.Errorf("%v, %v", out, err)
			}
		}
		if _, err := guard.Once(t.Context(), f.other, "k", guard.OnceOptions{Mode: guard.AtMostOnce}, nothing); !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("%v", err)
		}
	})
	if guard.Unknown(nil) != nil {
		t.Error("nil is no error")
	}
}

// A run takes an abandoned key over and has no result. The next run is a takeover too, until one
// has a result.
// Shows: O5
func TestOnceTakeoverFails(t *testing.T) {
	for name, fn := range map[string]func(context.Context) error{
		"error":    func(context.Context) error { return errBoom },
		"NoEffect": func(context.Context) error { return guard.NoEffect(errBoom) },
		"Unknown":  func(context.Context) error { return guard.Unknown(errBoom) },
		"panic":    func(context.Context) error { panic(errBoom) },
		"Goexit":   func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				o := guard.OnceOptions{Fingerprint: []byte("a")}
				_, _ = guard.Once(t.Context(), f.locks, "k", o, func(context.Context) error { return guard.Unknown(errBoom) })
				for range 2 {
					took := false
					inGoroutine(func() {
						_, _ = guard.Once(t.Context(), f.other, "k", o, func(ctx context.Context) error {
							_, took = guard.Attempt(ctx, "k")
							return fn(ctx)
						})
					})
					if !took {
						t.Error("a run after an abandoned one is no takeover")
					}
				}
				if _, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{Fingerprint: []byte("b")}, nothing); !errors.Is(err, lockcore.ErrMismatch) {
					t.Errorf("another payload: %v", err)
				}
				for _, want := range []guard.Outcome{guard.TookOver, guard.Replayed} {
					if out, err := guard.Once(t.Context(), f.locks, "k", o, nothing); err != nil || out != want {
						t.Errorf("%v, %v; want %v", out, err, want)
					}
				}
			})
		})
	}
}

// inGoroutine runs f in another goroutine, so that f may panic or exit.
func inGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}
