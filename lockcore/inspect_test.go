package lockcore_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Inspect returns the state of a once key with one command. The key is free, held,
// abandoned for as long as the backend remembers that, or done for as long as its record is kept.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		other, _, count := w.Locker(lockcore.Options{})
		ctx := lockcore.WithTask(t.Context(), "task-7")
		look := func(want lockcore.State, kept time.Duration, attempt int) *lockcore.Record {
			t.Helper()
			count.Reset()
			h, rec, err := inspectRecord(t.Context(), other, "k")
			if err != nil || h.State != want || h.KeepLeft != kept || h.Attempt != attempt {
				t.Errorf("%+v, %v; want %s, KeepLeft %v, attempt %d", h, err, want, kept, attempt)
			}
			if want != lockcore.StateFree && h.Holder.Task != "task-7" {
				t.Errorf("holder %v", h.Holder)
			}
			if sent := count.Commands(); !slices.Equal(sent, []string{"inspect"}) {
				t.Errorf("sent %v", sent)
			}
			return rec
		}
		_, _, _ = inspectRecord(t.Context(), other, "warm") // sends EVALSHA, then EVAL
		claim := func() *lockcore.Lease {
			t.Helper()
			le, _, err := l.Claim(ctx, "k", lockcore.Claim{Keep: 48 * time.Hour})
			return w.Must(le, err)
		}
		none := func(rec *lockcore.Record) {
			t.Helper()
			if rec != nil {
				t.Errorf("record %+v", rec)
			}
		}
		none(look(lockcore.StateFree, 0, 0))
		le := claim()
		none(look(lockcore.StateHeld, 0, 1))
		_ = le.Abandon(ctx)
		time.Sleep(time.Hour)
		none(look(lockcore.StateAbandoned, 47*time.Hour, 1))
		le = claim()
		if err := le.Complete(ctx, []byte("receipt"), 10*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if rec := look(lockcore.StateDone, 9*time.Hour, 2); rec == nil || string(rec.Data) != "receipt" || rec.Attempt != 2 {
			t.Errorf("record %+v", rec)
		}
		time.Sleep(9*time.Hour + time.Second)
		none(look(lockcore.StateFree, 0, 0))
	})
}

// A holder stops sending renewals. Its key is abandoned, and that is remembered for Keep after the
// end of its lease.
func TestLookAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le, _, err := l.Claim(access.WithFixed(t.Context()), "k", lockcore.Claim{Keep: 48 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		faults.Silence()
		time.Sleep(time.Hour)
		h, rec, err := inspectRecord(t.Context(), other, "k")
		if err != nil || rec != nil || h.State != lockcore.StateAbandoned || h.HeldFor != time.Hour || h.KeepLeft != 47*time.Hour+30*time.Second {
			t.Errorf("after the silence: %+v, %v, %v", h, rec, err)
		}
		faults.Heal()
		_ = le.Release(t.Context())
	})
}

// Inspect reads the once key only. It sends nothing for an invalid key or an ended
// ctx, and returns ErrUnavailable if Redis does not reply.
func TestLookErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, count := w.Locker(lockcore.Options{})
		gone, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		if _, _, err := inspectRecord(gone, l, "k"); !errors.Is(err, why) {
			t.Errorf("with an ended ctx: %v", err)
		}
		for _, key := range []string{"", strings.Repeat("k", 513)} {
			if _, _, err := inspectRecord(t.Context(), l, key); !errors.Is(err, lockcore.ErrKey) {
				t.Errorf("%d bytes: %v", len(key), err)
			}
		}
		if sent := count.Commands(); len(sent) != 0 {
			t.Errorf("sent %v", sent)
		}
		le := w.Must(l.Acquire(t.Context(), "k", noWait)) // exclusive
		if h, rec, err := inspectRecord(t.Context(), l, "k"); err != nil || rec != nil || h.State != lockcore.StateFree {
			t.Errorf("the once key: %+v, %v, %v", h, rec, err)
		}
		_ = le.Release(t.Context())
		faults.Silence()
		if h, rec, err := inspectRecord(t.Context(), l, "k"); !errors.Is(err, lockcore.ErrUnavailable) || rec != nil || !reflect.DeepEqual(h, lockcore.Holding{}) {
			t.Errorf("without a reply: %+v, %v, %v", h, rec, err)
		}
		faults.Heal()
	})
}

// inspect.lua does not return the record if it is not requested, because a record may be large. A
// done key without a record has an empty one.
func TestLookRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{})
		if err := w.Must(le, err).Complete(t.Context(), []byte(strings.Repeat("x", 1<<20)), time.Hour); err != nil {
			t.Fatal(err)
		}
		key := backend.Key{Kind: backend.KindOnce, Name: "k", Stored: storedNames(event.KindOnce, "k")}
		for part, want := range map[backend.RecordPart]int{backend.NoRecord: 22, backend.WholeRecord: 23} {
			reply, err := new(wire.Sender).Inspect(&key, part).Run(t.Context(), w.Redis)
			if n := len(wire.Elements(reply)); err != nil || n != want {
				t.Errorf("inspect.lua returns %d values, %v", n, err)
			}
		}
		if _, rec, err := inspectRecord(t.Context(), l, "k"); err != nil || len(rec.Data) != 1<<20 {
			t.Errorf("not the whole record: %v", err)
		}
		w.Memory.Redis.HDel("holdfast:2:o:{k}", "r")
		if h, rec, err := inspectRecord(t.Context(), l, "k"); err != nil || h.State != lockcore.StateDone || rec == nil || len(rec.Data) != 0 {
			t.Errorf("without a record: %+v, %+v, %v", h, rec, err)
		}
	})
}
