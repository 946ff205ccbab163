package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A handler transfers its hold, and another process adopts it and runs under the same key. Neither
// guard waits.
// Shows: T2
func TestTicketExclusive(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		for name, answer := range map[string]error{"nil": nil, "an error": errors.New("after the ticket"), "the end of its ctx": context.Canceled} {
			var ticket string
			err := guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{}, func(ctx context.Context) (err error) {
				if ticket, err = guard.Ticket(ctx, "k", time.Hour); err != nil {
					t.Error(err)
				}
				if cause := context.Cause(ctx); !errors.Is(cause, lockcore.ErrReleased) {
					t.Errorf("the cause is %v", cause)
				}
				return answer
			})
			if !errors.Is(err, answer) || (err == nil) != (answer == nil) {
				t.Errorf("%s: Exclusive returns %v", name, err)
			}
			if err := guard.Exclusive(t.Context(), f.other, "k", lockcore.Terms{Wait: lockcore.NoWait}, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("%s: beside the ticket: %v", name, err)
			}
			ran := false
			adopting := guard.WithTicket(t.Context(), ticket)
			err = guard.Exclusive(adopting, f.other, "k", lockcore.Terms{}, func(ctx context.Context) error {
				ran = true
				if err := guard.Exclusive(ctx, f.other, "other", lockcore.Terms{}, nothing); err != nil {
					t.Errorf("%s: another key: %v", name, err)
				}
				return guard.Exclusive(ctx, f.other, "k", lockcore.Terms{}, nothing) // nested
			})
			if err != nil || !ran {
				t.Errorf("%s: the adopter: %v", name, err)
			}
			if err := guard.Exclusive(adopting, f.locks, "k", lockcore.Terms{Wait: lockcore.NoWait}, nothing); err != nil {
				t.Errorf("%s: a used ticket: %v", name, err)
			}
		}
		// A share does not adopt the hold, and does not use up the ticket.
		ticket := ""
		err := guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{}, func(ctx context.Context) (err error) {
			ticket, err = guard.Ticket(ctx, "k", time.Hour)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		adopting := guard.WithTicket(t.Context(), ticket)
		if err := guard.Shared(adopting, f.other, "k", lockcore.Terms{Wait: lockcore.NoWait}, nothing); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a share with a ticket: %v", err)
		}
		if err := guard.Exclusive(adopting, f.other, "k", lockcore.Terms{Wait: lockcore.NoWait}, nothing); err != nil {
			t.Errorf("after a share: %v", err)
		}
		err = guard.Exclusive(guard.WithTicket(t.Context(), "garbage"), f.locks, "k", lockcore.Terms{}, nothing)
		if !errors.Is(err, lockcore.ErrTicket) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("a bad ticket: %v", err)
		}
	})
}

// A handler of Once transfers its hold. The adopter continues the same run, and only the
// adopter's result is recorded. A ticket for another key or kind is not used.
// Shows: T5
func TestTicketOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		for name, answer := range map[string]error{"nil": nil, "final": guard.Final(errors.New("after the ticket")), "unknown": guard.Unknown(errors.New("?"))} {
			o, key := guard.OnceOptions{Mode: guard.AtMostOnce, Terms: lockcore.Terms{Wait: lockcore.NoWait}}, "k "+name
			var ticket string
			r, err := guard.OnceValue(t.Context(), f.locks, key, o, func(ctx context.Context) (_ string, err error) {
				ticket, err = guard.Ticket(ctx, key, time.Hour)
				if err != nil {
					t.Error(err)
				}
				return "of the giver", answer
			})
			if r.Outcome != guard.Transferred || r.NotKept || !errors.Is(err, answer) {
				t.Errorf("%s: Once returns %+v, %v", name, r, err)
			}
			if _, err = guard.OnceValue(t.Context(), f.locks, key, o, giver); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("%s: a repetition: %v", name, err)
			}
			adopting := guard.WithTicket(t.Context(), ticket)
			if err := guard.Exclusive(adopting, f.other, key, lockcore.Terms{}, nothing); err != nil {
				t.Errorf("%s: the other kind: %v", name, err)
			}
			r, err = guard.OnceValue(adopting, f.other, key, o, func(context.Context) (string, error) { return "of the adopter", nil })
			if r.Outcome != guard.Ran || r.Attempt != 1 || err != nil {
				t.Errorf("%s: the adopter: %+v, %v", name, r, err)
			}
			for _, ctx := range []context.Context{adopting, t.Context()} {
				r, err = guard.OnceValue(ctx, f.other, key, o, giver)
				if r.Outcome != guard.Replayed || r.Value != "of the adopter" || err != nil {
					t.Errorf("%s: after the adopter: %+v, %v", name, r, err)
				}
			}
		}
	})
}

func giver(context.Context) (string, error) { return "of the giver", nil }

// Ticket races with the end of the handler. If the guard ends the hold first, there is no ticket.
// Otherwise the guard returns Transferred, and the ticket works.
// Shows: T1
func TestTicketRaces(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	for range testlevel.Pick(t, 300, 3000, 30_000) {
		tickets := make(chan string, 1)
		key := "k"
		outcome, err := guard.Once(t.Context(), locks, key, guard.OnceOptions{Keep: time.Second}, func(ctx context.Context) error {
			go func() {
				ticket, _ := guard.Ticket(ctx, key, time.Minute)
				tickets <- ticket
			}()
			return nil
		})
		ticket := <-tickets
		switch {
		case err != nil:
			t.Fatal(err)
		case (outcome == guard.Transferred) != (ticket != ""):
			t.Fatalf("Once returns %v, and the ticket has %d bytes", outcome, len(ticket))
		case ticket != "":
			le, err := locks.Adopt(t.Context(), ticket, lockcore.Terms{})
			if err != nil {
				t.Fatal(err)
			}
			_ = le.Release(t.Context())
		default:
			if err := locks.Clear(t.Context(), event.KindOnce, key); err != nil {
				t.Fatal(err)
			}
		}
	}
}
