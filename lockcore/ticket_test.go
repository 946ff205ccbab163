package lockcore_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testhook"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// onWorlds runs a test in virtual time, and on a real server, in parallel with other tests.
func onWorlds(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
	})
	t.Run("real", func(t *testing.T) { test(t, realWorld(t)) })
}

func ticketOf(t *testing.T, le *lockcore.Lease, d time.Duration) string {
	t.Helper()
	ticket, err := le.Ticket(t.Context(), d)
	ok(t, err)
	if cause := context.Cause(le.Context()); !errors.Is(cause, lockcore.ErrReleased) || !le.Transferred() {
		t.Errorf("after Ticket the cause is %v, Transferred is %v", cause, le.Transferred())
	}
	return ticket
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A ticket transfers a hold of an exclusive key to another process, once. The new hold has a
// greater token.
// Shows: T1
func TestTicket(t *testing.T) {
	onWorlds(t, func(t *testing.T, w *world) {
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		transferred := func(want bool) {
			t.Helper()
			if h, err := b.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.Transferred != want || h.Fixed != want || h.Holder.Host == "" || h.Holder.Traceparent != "" {
				t.Errorf("transferred is %v, fixed %v, holder %v, want %v: %v", h.Transferred, h.Fixed, h.Holder, want, err)
			}
		}
		transferred(false)
		ticket := ticketOf(t, le, time.Minute)
		transferred(true)
		wantErr(t, "Release", le.Release(t.Context()), lockcore.ErrReleased)
		_, err := le.Ticket(t.Context(), time.Minute)
		wantErr(t, "a second Ticket", err, lockcore.ErrReleased)
		_, err = b.Acquire(t.Context(), "k", noWait)
		wantErr(t, "Acquire", err, lockcore.ErrBusy)
		if kind, key, err := b.TicketKey(ticket); kind != event.KindExclusive || key != "k" || err != nil {
			t.Errorf("TicketKey returns %v, %q, %v", kind, key, err)
		}
		got := w.Must(b.Adopt(t.Context(), ticket, lockcore.Terms{}))
		if got.Token() <= le.Token() || got.Abandoned() || got.Attempt() != 1 || got.Key() != "k" {
			t.Errorf("token %d after %d, abandoned %v, attempt %d, key %q", got.Token(), le.Token(), got.Abandoned(), got.Attempt(), got.Key())
		}
		transferred(false)
		_, err = a.Adopt(t.Context(), ticket, lockcore.Terms{})
		wantErr(t, "a second Adopt", err, lockcore.ErrLost)
		wantErr(t, "a second Adopt", err, lockcore.ErrNotRun)
		nested := w.Must(b.Acquire(got.Context(), "k", lockcore.Terms{}))
		ok(t, nested.Release(t.Context()))
		if w.Memory != nil {
			time.Sleep(5 * time.Minute) // the lease is renewed meanwhile
		}
		ok(t, got.Release(t.Context()))
		next := w.Must(a.Acquire(t.Context(), "k", noWait))
		if next.Token() <= got.Token() || next.Abandoned() {
			t.Errorf("token %d after %d, abandoned %v", next.Token(), got.Token(), next.Abandoned())
		}
		ok(t, next.Release(t.Context()))
	})
}

// The run of a once key continues after its adoption, with its attempt, fingerprint and Keep. Its
// record is replayed.
// Shows: T5
func TestTicketOnce(t *testing.T) {
	onWorlds(t, func(t *testing.T, w *world) {
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		claim := lockcore.Claim{Terms: noWait, Fingerprint: []byte("f"), Keep: 7 * time.Hour, AtMostOnce: true}
		le, _, err := a.Claim(t.Context(), "k", claim)
		ok(t, w.Must(le, err).Release(t.Context()))
		le, _, err = a.Claim(t.Context(), "k", claim)
		ticket := ticketOf(t, w.Must(le, err), 24*time.Hour)
		if len(ticket) > 800 {
			t.Errorf("the ticket has %d bytes", len(ticket))
		}
		got := w.Must(b.Adopt(t.Context(), ticket, lockcore.Terms{}))
		if got.Attempt() != 2 || got.Keep() != 7*time.Hour {
			t.Errorf("attempt %d, Keep %v", got.Attempt(), got.Keep())
		}
		other := claim
		other.Fingerprint = []byte("other")
		_, _, err = a.Claim(t.Context(), "k", other)
		wantErr(t, "a claim of another payload", err, lockcore.ErrMismatch)
		ok(t, got.Complete(t.Context(), []byte("done"), time.Hour))
		_, rec, err := a.Claim(t.Context(), "k", claim)
		if rec == nil || string(rec.Data) != "done" || rec.Attempt != 2 {
			t.Errorf("the record is %v, %v", rec, err)
		}
	})
}

// A Locker in memory transfers a hold inside the process.
func TestTicketMemory(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, l *lockcore.Locker) {
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		ticket := ticketOf(t, le, time.Minute)
		got, err := l.Adopt(t.Context(), ticket, lockcore.Terms{MaxHold: time.Second})
		ok(t, err)
		<-got.Context().Done()
		wantErr(t, "Release after MaxHold", got.Release(t.Context()), lockcore.ErrMaxHold)
	})
}

// A hold that no process adopts in time is abandoned. So is a hold whose adopter loses its lease.
// Shows: T4
func TestTicketAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, faults, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		ticket := ticketOf(t, le, 2*time.Hour)
		time.Sleep(2*time.Hour - time.Second)
		_, err := b.Acquire(t.Context(), "k", noWait)
		wantErr(t, "Acquire before the end", err, lockcore.ErrBusy)
		time.Sleep(2 * time.Second)
		_, err = b.Adopt(t.Context(), ticket, lockcore.Terms{})
		wantErr(t, "Adopt after the end", err, lockcore.ErrLost)
		next := w.Must(b.Acquire(t.Context(), "k", noWait))
		if !next.Abandoned() {
			t.Error("Abandoned is false after a takeover")
		}
		got := w.Must(b.Adopt(t.Context(), ticketOf(t, next, time.Minute), lockcore.Terms{}))
		if !got.Abandoned() {
			t.Error("Abandoned is false for the adopter after a takeover")
		}
		faults.Silence()
		<-got.Context().Done()
		wantErr(t, "the adopter", context.Cause(got.Context()), lockcore.ErrLost)
		time.Sleep(time.Minute)
		faults.Heal()
		_ = got.Release(t.Context())
	})
}

// Several calls adopt the same ticket at the same time. Exactly one of them gets the hold.
// Shows: T2
func TestTicketConcurrent(t *testing.T) {
	onWorlds(t, func(t *testing.T, w *world) {
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		ticket := ticketOf(t, w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{})), time.Minute)
		var adopted atomic.Int32
		var wg sync.WaitGroup
		for _, l := range []*lockcore.Locker{a, b, a, b, a, b} {
			wg.Go(func() {
				le, err := l.Adopt(t.Context(), ticket, lockcore.Terms{})
				if err == nil {
					adopted.Add(1)
					ok(t, le.Release(t.Context()))
					return
				}
				wantErr(t, "Adopt", err, lockcore.ErrLost)
			})
		}
		wg.Wait()
		if n := adopted.Load(); n != 1 {
			t.Errorf("%d calls adopted the hold, want 1", n)
		}
	})
}

// Replies are lost. Ticket leaves the lease as it is. Adopt sends its command again and gets the
// same grant, or abandons the hold.
// Shows: T2, T3, T4
func TestTicketLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, toA, _ := w.Locker(lockcore.Options{})
		b, toB, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		toA.SilenceReplies()
		_, err := le.Ticket(t.Context(), time.Hour)
		wantErr(t, "Ticket without a reply", err, lockcore.ErrUnavailable)
		if le.Context().Err() != nil || le.Transferred() {
			t.Error("Ticket without a reply ended the lease")
		}
		toA.Heal()
		time.Sleep(time.Minute)
		ok(t, le.Context().Err())
		lost := toA.CutReply(faulty.Script("renew"))
		ticket := ticketOf(t, le, time.Hour)
		if !struckBy(lost) {
			t.Error("inconclusive: no reply was cut")
		}

		lost = toB.CutReply(faulty.Script("adopt"))
		got := w.Must(b.Adopt(t.Context(), ticket, lockcore.Terms{}))
		if !struckBy(lost) {
			t.Error("inconclusive: no reply was cut")
		}
		time.Sleep(time.Minute)
		ticket = ticketOf(t, got, time.Hour)

		toB.SilenceReplies()
		_, err = b.Adopt(t.Context(), ticket, lockcore.Terms{})
		wantErr(t, "Adopt without a reply", err, lockcore.ErrUnavailable)
		toB.Heal()
		time.Sleep(5 * time.Second)
		next := w.Must(a.Acquire(t.Context(), "k", noWait))
		if !next.Abandoned() {
			t.Error("Abandoned is false after a takeover")
		}
		ticket = ticketOf(t, next, time.Hour)
		toB.Cut() // the request is never written
		toB.Silence()
		_, err = b.Adopt(t.Context(), ticket, lockcore.Terms{})
		wantErr(t, "Adopt without a request", err, lockcore.ErrUnavailable)
		toB.Heal()
		time.Sleep(5 * time.Second)
		ok(t, w.Must(b.Adopt(t.Context(), ticket, lockcore.Terms{})).Release(t.Context()))
	})
}

// A hold is revoked after Ticket. Adopt returns ErrRevoked and abandons the hold. A revocation
// after Adopt ends the adopted hold.
// Shows: T4
func TestTicketRevoked(t *testing.T) {
	onWorlds(t, func(t *testing.T, w *world) {
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		ticket := ticketOf(t, w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{})), time.Minute)
		ok(t, b.Revoke(t.Context(), event.KindExclusive, "k"))
		_, err := b.Adopt(t.Context(), ticket, lockcore.Terms{})
		wantErr(t, "Adopt", err, lockcore.ErrRevoked)
		next := w.Must(a.Acquire(t.Context(), "k", long))
		if !next.Abandoned() {
			t.Error("Abandoned is false after a takeover")
		}
		got := w.Must(b.Adopt(t.Context(), ticketOf(t, next, time.Minute), lockcore.Terms{}))
		ok(t, a.Revoke(t.Context(), event.KindExclusive, "k"))
		if w.Memory != nil {
			<-got.Context().Done()
			wantErr(t, "the adopter", got.Release(t.Context()), lockcore.ErrRevoked)
		} else {
			_ = got.Release(t.Context()) // so that Close does not wait for it
		}
	})
}

// A renewal that was sent before Ticket arrives after Adopt. It changes nothing.
// Shows: T1
func TestTicketLateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, faults, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		late := faults.Hold(faulty.Script("renew"))
		time.Sleep(11 * time.Second)
		if !struckBy(late) {
			t.Fatal("inconclusive: no renewal was held")
		}
		got := w.Must(b.Adopt(access.WithFixed(t.Context()), ticketOf(t, le, time.Hour), lockcore.Terms{Lease: 10 * time.Second}))
		late.Deliver()
		time.Sleep(time.Second)
		if left := w.Left(b, "k"); left > 9*time.Second {
			t.Errorf("the remaining lease is %v, want at most 9s", left)
		}
		ok(t, got.Release(t.Context()))
	})
}

// A hold in a batch is transferred, which ends the batch. Waiters of the same process and of others
// get the key after the adopter.
// Shows: T1
func TestTicketWaiters(t *testing.T) {
	onWorlds(t, func(t *testing.T, w *world) {
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		var wg sync.WaitGroup
		var last atomic.Int64
		tickets := make(chan string, 1)
		wg.Go(func() { // gets the key by a hand-off from le
			second := w.Must(a.Acquire(t.Context(), "k", long))
			last.Store(second.Token())
			tickets <- ticketOf(t, second, time.Minute)
		})
		time.Sleep(20 * time.Millisecond)
		for _, l := range []*lockcore.Locker{a, a, b, b} {
			wg.Go(func() {
				le, err := l.Acquire(t.Context(), "k", long)
				if err != nil {
					t.Error(err)
					return
				}
				if before := last.Swap(le.Token()); before >= le.Token() {
					t.Errorf("token %d after %d", le.Token(), before)
				}
				ok(t, le.Release(t.Context()))
			})
			time.Sleep(20 * time.Millisecond)
		}
		ok(t, le.Release(t.Context()))
		ticket := <-tickets
		got := w.Must(a.Adopt(t.Context(), ticket, lockcore.Terms{}))
		if before := last.Swap(got.Token()); before >= got.Token() {
			t.Errorf("token %d after %d", got.Token(), before)
		}
		time.Sleep(50 * time.Millisecond)
		ok(t, got.Release(t.Context()))
		wg.Wait()
	})
}

// Ticket refuses a hold with nested runs, and a duration outside of its bounds. The lease
// continues.
// Shows: T3
func TestTicketRefused(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, l *lockcore.Locker) {
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Minute})
		ok(t, err)
		for _, d := range []time.Duration{0, time.Minute - 1, 24*time.Hour + 1} {
			if _, err := le.Ticket(t.Context(), d); err == nil || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("Ticket for %v: %v", d, err)
			}
		}
		nested, err := l.Acquire(le.Context(), "k", lockcore.Terms{})
		ok(t, err)
		_, err = nested.Ticket(t.Context(), time.Hour)
		wantErr(t, "Ticket of the nested lease", err, lockcore.ErrNested)
		_, err = le.Ticket(t.Context(), time.Hour)
		wantErr(t, "Ticket of the outer lease", err, lockcore.ErrNested)
		_, err = access.Ticket(nested.Context(), "k", time.Hour)
		wantErr(t, "Ticket by the ctx", err, lockcore.ErrNested)
		if _, err = access.Ticket(le.Context(), "other", time.Hour); err == nil {
			t.Error("Ticket of a key that ctx does not hold returned no error")
		}
		ok(t, nested.Release(t.Context()))
		ok(t, le.Context().Err())
		if _, err := access.Ticket(le.Context(), "k", time.Hour); err != nil {
			t.Errorf("Ticket after the nested run: %v", err)
		}
		var none *lockcore.Lease
		_, err = none.Ticket(t.Context(), time.Hour)
		wantErr(t, "Ticket of nil", err, lockcore.ErrReleased)
	})
}

// A text that is no ticket of the prefix is refused without a command. A ticket with a forged id
// adopts nothing.
// Shows: T6
func TestTicketForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		prefixed, _, _ := w.Locker(lockcore.Options{Prefix: "other"})
		ticket := ticketOf(t, w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{})), time.Hour)
		_, err := prefixed.Adopt(t.Context(), ticket, lockcore.Terms{})
		wantErr(t, "another prefix", err, lockcore.ErrTicket)
		count.Reset()
		bad := []string{"", "garbage", ticket + "A", ticket + "=", ticket + "\n", "\n" + ticket, ticket[:len(ticket)-1], strings.Repeat("A", 2000)}
		for i := range ticket {
			other := byte('A')
			if ticket[i] == other {
				other = 'B'
			}
			bad = append(bad, ticket[:i]+string(other)+ticket[i+1:])
		}
		for _, text := range bad {
			_, err := l.Adopt(t.Context(), text, lockcore.Terms{})
			wantErr(t, text, err, lockcore.ErrTicket)
			wantErr(t, text, err, lockcore.ErrNotRun)
		}
		if n := len(count.Commands()); n != 0 {
			t.Errorf("%d commands for texts that are no tickets, want 0", n)
		}
		_, err = l.Adopt(t.Context(), lockcore.ForgedTicket(l, event.KindExclusive, "k", 1), lockcore.Terms{})
		wantErr(t, "a forged id", err, lockcore.ErrLost)
		_, err = l.Adopt(t.Context(), lockcore.ForgedTicket(l, event.KindExclusive, "k", 9e15), lockcore.Terms{})
		wantErr(t, "a token that the scripts refuse", err, lockcore.ErrTicket)
		_, err = l.Adopt(t.Context(), lockcore.ForgedTicket(l, event.KindOnce, "k", 1), lockcore.Terms{})
		wantErr(t, "another kind", err, lockcore.ErrLost)
		ok(t, w.Must(l.Adopt(t.Context(), ticket, lockcore.Terms{})).Release(t.Context()))
	})
}

// TicketKey returns an error, or a valid kind and key, for any text.
// Shows: T6
func FuzzTicket(f *testing.F) {
	l, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Close(context.Background()) })
	for _, key := range []string{"k", strings.Repeat("\xff", 512)} {
		f.Add(lockcore.ForgedTicket(l, event.KindOnce, key, 1))
	}
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		kind, key, err := l.TicketKey(text)
		if err == nil && (kind != event.KindOnce && kind != event.KindExclusive || key == "" || len(key) > 512) {
			t.Errorf("%q is a ticket of %v %q", text, kind, key)
		}
	})
}

// ticketCanary is an Observer that keeps the texts of all events.
type ticketCanary struct {
	mu   sync.Mutex
	text strings.Builder
}

func (c *ticketCanary) add(v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(&c.text, "%v %+v %#v\n", v, v, v)
}

func (c *ticketCanary) Start(ctx context.Context, a event.Acquisition) context.Context {
	c.add(a)
	return ctx
}
func (c *ticketCanary) Event(_ context.Context, e event.Event) { c.add(e) }
func (c *ticketCanary) Traceparent(context.Context) string     { return "" }

// No event, log record, error, Hold or String contains the ticket, or the id of a grant that can be
// transferred.
// Shows: T6
func TestTicketCanary(t *testing.T) {
	var logged bytes.Buffer
	defer setDefault(slog.NewTextHandler(&logged, nil))()
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), new(ticketCanary)
		l, faults, _ := w.Locker(lockcore.Options{Observer: c})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		hold, _ := access.Current(le.Context())
		c.add(hold)
		c.add(le)
		faults.SilenceReplies()
		_, err := le.Ticket(t.Context(), time.Hour)
		c.add(err)
		faults.Heal()
		time.Sleep(time.Second)
		_, err = le.Ticket(t.Context(), 0)
		c.add(err)
		ticket := ticketOf(t, le, time.Hour)
		_, err = le.Ticket(t.Context(), time.Hour)
		c.add(err)
		_, err = l.Acquire(t.Context(), "k", noWait)
		c.add(err)
		holding, _ := l.Inspect(t.Context(), event.KindExclusive, "k")
		c.add(holding)
		for _, text := range []string{ticket + "A", ticket} {
			faults.SilenceReplies()
			_, err = l.Adopt(t.Context(), text, lockcore.Terms{})
			c.add(err)
			faults.Heal()
			time.Sleep(time.Second)
			le, err = l.Adopt(t.Context(), text, lockcore.Terms{})
			c.add(err)
			_ = le.Release(t.Context())
		}
		raw, err := base64.RawURLEncoding.DecodeString(ticket)
		ok(t, err)
		c.mu.Lock()
		all := c.text.String() + logged.String()
		c.mu.Unlock()
		id := string(raw[len(raw)-len("k")-26 : len(raw)-len("k")])
		for _, secret := range []string{ticket, id} {
			if strings.Contains(all, secret) {
				t.Errorf("%q is in the telemetry:\n%s", secret, all)
			}
		}
		if !strings.Contains(all, "Transferred:true") {
			t.Error("no event reports the transfer")
		}
	})
}

// Ticket races with Release, a loss, a nested run and Close. If it returns a ticket, the ticket
// works, and the lease has ended without a release. Otherwise the key is not kept for a ticket.
// Shows: T1
func TestTicketRaces(t *testing.T) {
	rivals := map[string]func(l *lockcore.Locker, le *lockcore.Lease) error{
		"release": func(_ *lockcore.Locker, le *lockcore.Lease) error { return le.Release(context.Background()) },
		"loss": func(_ *lockcore.Locker, le *lockcore.Lease) error {
			testhook.Lose(le.Context())
			return nil
		},
		"nested run": func(l *lockcore.Locker, le *lockcore.Lease) error {
			inner, err := l.Acquire(le.Context(), "k", noWait)
			if err == nil {
				err = inner.Release(context.Background())
			}
			return err
		},
	}
	for name, rival := range rivals {
		t.Run(name, func(t *testing.T) {
			l, err := lockcore.NewMemory(lockcore.MemoryOptions{})
			ok(t, err)
			defer func() { ok(t, l.Close(context.Background())) }()
			for range testlevel.Pick(t, 300, 3000, 30_000) {
				le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute, Lease: time.Second})
				ok(t, err)
				var rivalErr error
				var wg sync.WaitGroup
				wg.Go(func() { rivalErr = rival(l, le) })
				ticket, err := le.Ticket(t.Context(), time.Second)
				if err == nil && le.Context().Err() == nil {
					t.Fatal("Ticket returned before the ctx ended")
				}
				wg.Wait()
				switch {
				case err == nil:
					if name == "release" && !errors.Is(rivalErr, lockcore.ErrReleased) {
						t.Fatalf("Ticket and Release both succeeded: Release returned %v", rivalErr)
					}
					got, err := l.Adopt(t.Context(), ticket, lockcore.Terms{})
					ok(t, err)
					ok(t, got.Release(t.Context()))
				case name == "loss": // the key is kept until the end of the lease
					wantErr(t, "Ticket", err, lockcore.ErrLost)
					_ = le.Release(t.Context())
				default:
					if !errors.Is(err, lockcore.ErrReleased) && !errors.Is(err, lockcore.ErrNested) {
						t.Fatal(err)
					}
					_ = le.Release(t.Context())
				}
			}
		})
	}
	t.Run("close", func(t *testing.T) {
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, _, _ := w.Locker(lockcore.Options{})
				other, _, _ := w.Locker(lockcore.Options{})
				le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				closed := make(chan struct{})
				go func() {
					_ = l.Close(ended) // without time to wait for the lease
					close(closed)
				}()
				ticket, err := le.Ticket(t.Context(), time.Minute)
				<-closed
				if err != nil {
					_ = le.Release(t.Context())
					return
				}
				ok(t, w.Must(other.Adopt(t.Context(), ticket, lockcore.Terms{})).Release(t.Context()))
			})
		}
	})
}

// The ctx of Adopt ends while Redis does not reply. The error matches the cause of ctx,
// ErrUnavailable and ErrNotRun.
func TestTicketAdoptCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, f, _ := w.Locker(lockcore.Options{})
		ticket := ticketOf(t, w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{})), time.Hour)
		mine := errors.New("my cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		f.Silence()
		time.AfterFunc(100*time.Millisecond, func() { cancel(mine) })
		_, err := b.Adopt(ctx, ticket, lockcore.Terms{})
		for _, want := range []error{mine, lockcore.ErrUnavailable, lockcore.ErrNotRun} {
			wantErr(t, "Adopt", err, want)
		}
		f.Heal()
		time.Sleep(5 * time.Second)
	})
}
