package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// The lease ends under a handler, and the handler returns the error of its ctx. The guard's error
// has both that error and the cause of the end, in one line.
// Shows: L15
func TestEndedLeaseIsNamed(t *testing.T) {
	for name, end := range map[string]struct {
		terms lockcore.Terms
		cause error
		lose  bool
	}{
		"max hold": {terms: lockcore.Terms{MaxHold: time.Second}, cause: lockcore.ErrMaxHold},
		"stall":    {terms: lockcore.Terms{Stall: time.Second}, cause: lockcore.ErrStalled},
		"lost":     {cause: lockcore.ErrLost, lose: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				work := func(ctx context.Context) error {
					if end.lose {
						locktest.Lose(ctx)
					}
					<-ctx.Done()
					return fmt.Errorf("query: %w", ctx.Err())
				}
				check := func(who string, err error) {
					t.Helper()
					if !errors.Is(err, end.cause) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "query: context canceled") ||
						strings.Contains(err.Error(), "\n") || errors.Is(err, lockcore.ErrNotRun) {
						t.Errorf("%s: %v", who, err)
					}
				}
				check("Exclusive", guard.Exclusive(t.Context(), f.locks, "k", end.terms, work))
				check("nested", guard.Exclusive(t.Context(), f.locks, "n", end.terms, func(ctx context.Context) error {
					return guard.Exclusive(ctx, f.locks, "n", end.terms, work)
				}))
				_, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{Terms: end.terms}, work)
				check("Once", err)
				res, err := guard.OnceValue(t.Context(), f.locks, "v", guard.OnceOptions{Terms: end.terms}, func(ctx context.Context) (int, error) { return 7, work(ctx) })
				check("OnceValue", err)
				if res.Value != 7 || res.Outcome != guard.Ran {
					t.Errorf("%+v", res)
				}
				if err := guard.Exclusive(t.Context(), f.locks, "other", end.terms, func(ctx context.Context) error { _ = work(ctx); return errBoom }); err != errBoom { //nolint:errorlint // unchanged
					t.Errorf("an error of another kind: %v", err)
				}
				if err := guard.Exclusive(t.Context(), f.locks, "own", end.terms, func(ctx context.Context) error { _ = work(ctx); return context.Cause(ctx) }); err != end.cause { //nolint:errorlint // unchanged
					t.Errorf("the cause itself: %v", err)
				}
			})
		})
	}
}

// The caller cancels its ctx while the lease is valid. The handler's error is returned unchanged.
func TestCanceledCallerIsNotALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		err := guard.Exclusive(ctx, f.locks, "k", lockcore.Terms{}, func(ctx context.Context) error { cancel(); return ctx.Err() })
		if err != context.Canceled { //nolint:errorlint // unchanged
			t.Error(err)
		}
	})
}

// The cause of a lease's end is added to a handler's error that has a mark. The mark stays
// effective, for the Once of the handler and for a Once around it, and the record has the handler's
// text only.
// Shows: L15
func TestEndedLeaseKeepsMarks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		for name, test := range map[string]struct {
			mark func(error) error
			next func(guard.Outcome, error) bool
		}{
			"no effect": {guard.NoEffect, func(o guard.Outcome, err error) bool { return o == guard.Ran && err == nil }},
			"unknown": {guard.Unknown, func(o guard.Outcome, err error) bool {
				return o == guard.NotRun && errors.Is(err, lockcore.ErrAbandoned)
			}},
			"final": {guard.Final, func(o guard.Outcome, err error) bool {
				return o == guard.Replayed && errors.As(err, new(*guard.RecordedError)) && strings.HasSuffix(err.Error(), "context canceled")
			}},
			"none": {func(err error) error { return err }, func(o guard.Outcome, err error) bool {
				return o == guard.Replayed && strings.HasSuffix(err.Error(), "context canceled")
			}},
		} {
			work := func(ctx context.Context) error { <-ctx.Done(); return test.mark(ctx.Err()) }
			most := guard.OnceOptions{Mode: guard.AtMostOnce}
			short := most
			short.Terms.MaxHold = time.Second
			_, err := guard.Once(t.Context(), f.locks, "own "+name, short, work)
			if !errors.Is(err, lockcore.ErrMaxHold) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			_, err = guard.Once(t.Context(), f.locks, "around "+name, most, func(ctx context.Context) error {
				return guard.Exclusive(ctx, f.locks, "k "+name, lockcore.Terms{MaxHold: time.Second}, work)
			})
			if !errors.Is(err, lockcore.ErrMaxHold) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, around: %v", name, err)
			}
			for _, key := range []string{"own ", "around "} {
				if o, err := guard.Once(t.Context(), f.locks, key+name, most, nothing); !test.next(o, err) {
					t.Errorf("%s%s: then %v, %v", key, name, o, err)
				}
			}
		}
	})
}
