package rows_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
)

// scene is a backend on a table, with an exclusive key and a once key.
type scene struct {
	*testing.T
	*table
	b         *rows.Backend
	job, once backend.Key
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, do func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, table: newTable()}
		s.b = s.backend("L")
		s.job, s.once = s.b.Key(backend.KindExclusive, "job"), s.b.Key(backend.KindOnce, "once")
		t.Cleanup(s.b.Close)
		do(t, s)
	})
}

func request(k *backend.Key) backend.AcquireRequest {
	return backend.AcquireRequest{
		Key: k, ID: rand.Text(), Holder: "holder", Lease: 30 * time.Second, Retention: 24 * time.Hour, First: true, Timeout: backend.CallTimeout,
	}
}

// acquire sends a request and checks the outcome.
func (s *scene) acquire(want backend.Outcome, r backend.AcquireRequest) backend.AcquireReply {
	s.Helper()
	reply, err := s.b.Acquire(s.Context(), r)
	if err != nil || reply.Outcome != want {
		s.Fatalf("Acquire returns %+v and error %v, want outcome %d", reply, err, want)
	}
	return reply
}

func ending(r backend.AcquireRequest, g backend.AcquireReply) backend.ReleaseRequest {
	return backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: g.Token, Retention: time.Minute, Plain: g.Plain}
}

func (s *scene) release(r backend.ReleaseRequest) {
	s.Helper()
	if reply, err := s.b.Release(s.Context(), r); err != nil || !reply.Released {
		s.Fatalf("Release returns %+v and error %v", reply, err)
	}
}

// fail lets the next statement of a method fail, with or without its effect.
func (s *scene) fail(method string, err error) {
	var once atomic.Bool
	hook := func(m string) error {
		if m != method || once.Swap(true) {
			return nil
		}
		return err
	}
	if errors.Is(err, errLost) {
		s.hook(nil, hook)
	} else {
		s.hook(hook, nil)
	}
}

// A request whose reply is lost is repeated with the same id, and gets the same grant.
// Shows: L12
func TestLostReply(t *testing.T) {
	for _, method := range []string{"Grant", "Write"} {
		inBubble(t, func(t *testing.T, s *scene) {
			s.ruleOnly = method == "Write"
			s.fail(method, errLost)
			r := request(&s.job)
			reply, err := s.b.Acquire(s.Context(), r)
			if !errors.Is(err, errLost) || !reply.Repeated || reply.Outcome != backend.OutcomeBusy || reply.Sent.IsZero() {
				t.Errorf("%s: %+v and error %v, want a lost reply", method, reply, err)
			}
			token := s.rows["x:job"].Token
			r.First = false
			if again := s.acquire(backend.OutcomeGranted, r); again.Token != token || again.Repeated {
				t.Errorf("%s: the repeat gets %+v, want token %d", method, again, token)
			}
		})
	}
}

// A request that failed without an effect is not a repeat.
func TestFailedBeforeItWasSent(t *testing.T) {
	for _, method := range []string{"Grant", "Read", "Write"} {
		inBubble(t, func(t *testing.T, s *scene) {
			s.ruleOnly = method != "Grant"
			s.fail(method, errors.New("refused"))
			if reply, err := s.b.Acquire(s.Context(), request(&s.job)); err == nil || reply.Repeated {
				t.Errorf("%s: %+v and error %v, want an error without an effect", method, reply, err)
			}
			s.acquire(backend.OutcomeGranted, request(&s.job))
		})
	}
}

// If the store does not say who listens, a release has its effect, and a waiting call gets the key when it
// asks again.
func TestListeningUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		asked := 0
		s.hook(func(method string) error {
			if method == "Listening" {
				asked++
				return errors.New("no right to ask")
			}
			return nil
		}, nil)
		first, waiting := request(&s.job), request(&s.job)
		waiting.Queue = true
		held := s.acquire(backend.OutcomeGranted, first)
		s.acquire(backend.OutcomeBusy, waiting)
		s.release(ending(first, held))
		waiting.First = false
		s.acquire(backend.OutcomeGranted, waiting)
		if asked == 0 {
			t.Error("the store was not asked")
		}
	})
}

// A lost reply of a release, a completion or an operator's call is answered by the repeat.
// Shows: R3
func TestLostEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		r := request(&s.job)
		g := s.acquire(backend.OutcomeGranted, r)
		s.fail("Free", errLost)
		end := ending(r, g)
		if reply, err := s.b.Release(t.Context(), end); err == nil || !reply.Repeated {
			t.Errorf("Release returns %+v and error %v, want a lost reply", reply, err)
		}
		end.Repeated = true
		if reply, err := s.b.Release(t.Context(), end); err != nil || reply.Released {
			t.Errorf("the repeat returns %+v and error %v, want nothing to release", reply, err)
		}
		r.First = false
		s.acquire(backend.OutcomeEnded, r) // a late duplicate

		o := request(&s.once)
		g = s.acquire(backend.OutcomeGranted, o)
		s.fail("Finish", errLost)
		c := backend.CompleteRequest{Key: &s.once, ID: o.ID, Token: g.Token, Record: []byte("record"), Keep: time.Hour, Plain: true}
		if reply, err := s.b.Complete(t.Context(), c); err == nil || !reply.Repeated {
			t.Errorf("Complete returns %+v and error %v, want a lost reply", reply, err)
		}
		c.Repeated = true
		if reply, err := s.b.Complete(t.Context(), c); err != nil || !reply.Released {
			t.Errorf("the repeat returns %+v and error %v, want success", reply, err)
		}

		h := request(&s.job)
		s.acquire(backend.OutcomeGranted, h)
		s.fail("Write", errLost)
		if revoked, err := s.b.Revoke(t.Context(), backend.RevokeRequest{Key: &s.job}); err != nil || !revoked {
			t.Errorf("Revoke returns %t and error %v, want true", revoked, err)
		}
	})
}

// A client that pauses between its read and its write for more than a second writes nothing. Otherwise
// it could insert a row with a smaller token than one that was used and purged meanwhile.
func TestLateWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		late := s.backend("late")
		t.Cleanup(late.Close)
		slow := request(&s.job)
		slow.First = false // no Grant
		var paused sync.WaitGroup
		var once atomic.Bool
		s.hook(func(method string) error {
			if method == "Write" && !once.Swap(true) {
				time.Sleep(5 * time.Hour)
			}
			return nil
		}, nil)
		paused.Go(func() {
			if reply, err := late.Acquire(t.Context(), slow); err == nil || reply.Repeated {
				t.Errorf("the paused client gets %+v, want an error without an effect", reply)
			}
		})
		synctest.Wait()
		r := request(&s.job)
		r.Retention = time.Minute
		g := s.acquire(backend.OutcomeGranted, r)
		s.release(ending(r, g))
		time.Sleep(4 * time.Hour)
		if _, err := rows.Purge(t.Context(), store{s.table}); err != nil || len(s.rows) != 0 {
			t.Errorf("%d rows are left, %v", len(s.rows), err)
		}
		paused.Wait()
		if len(s.rows) != 0 {
			t.Errorf("the paused client wrote %+v", s.rows)
		}
	})
}

// Tokens grow although the clock is set back after each hold, however it ended, by the plain statements
// and by the rules.
// Shows: I3
func TestTokensGrow(t *testing.T) {
	for _, ruleOnly := range []bool{false, true} {
		for _, end := range []string{"release", "abandon", "expiry"} {
			inBubble(t, func(t *testing.T, s *scene) {
				s.ruleOnly = ruleOnly
				last := int64(0)
				for i := range 5 {
					r := request(&s.job)
					r.Retention = time.Hour
					g := s.acquire(backend.OutcomeGranted, r)
					if g.Token <= last {
						t.Errorf("rules %t, %s: token %d of hold %d, want more than %d", ruleOnly, end, g.Token, i, last)
					}
					last = g.Token + 7
					time.Sleep(time.Millisecond) // a release of a plain hold says that the clock is past its tokens
					switch release := ending(r, g); end {
					case "expiry":
						last = g.Token + backend.TokensPerGrant - 1
						time.Sleep(2 * time.Hour)
						s.setBack(2*time.Hour + time.Minute)
						s.acquire(backend.OutcomeBusy, request(&s.job)) // for the length of the lease it seems to be valid
						time.Sleep(31 * time.Second)
					default:
						release.Token, release.Abandon = last, end == "abandon"
						s.release(release)
						s.setBack(time.Minute)
					}
				}
			})
		}
	}
}

// What only costs time if it is lost does not wait for the disk.
func TestDurable(t *testing.T) {
	share := backend.Share{Limit: 3, Weight: 1}
	inBubble(t, func(t *testing.T, s *scene) {
		s.ruleOnly = true
		listen(s)
		check := func(what string, want bool) {
			t.Helper()
			if len(s.writes) == 0 {
				t.Errorf("%s writes nothing", what)
				return
			}
			if w := s.writes[len(s.writes)-1]; w.Durable != want {
				t.Errorf("%s: durable is %t, want %t", what, w.Durable, want)
			}
			s.writes = nil
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		r := request(&s.job)
		g := s.acquire(backend.OutcomeGranted, r)
		check("a grant", true)
		waiter := request(&s.job)
		waiter.Queue = true
		s.acquire(backend.OutcomeBusy, waiter)
		check("a queue entry", false)
		_, err := s.b.Park(t.Context(), backend.ParkRequest{Key: &s.job, Entry: "e", Most: 10, Keep: time.Hour})
		must(err)
		check("a parked entry", false)
		must(s.b.Renew(t.Context(), []backend.RenewRequest{{Key: &s.job, ID: r.ID, Lease: time.Minute, Retention: time.Hour}})[0].Err)
		check("a renewal", true)
		s.release(ending(r, g))
		check("a release", false)
		waiter.First = false
		g = s.acquire(backend.OutcomeGranted, waiter)
		check("a grant of a reserved key", true)
		end := ending(waiter, g)
		end.CoolUntil = time.Now().Add(time.Second)
		s.release(end)
		check("a cooldown", true)
		time.Sleep(2 * time.Second)
		must(s.b.Pause(t.Context(), &s.job, time.Second, "reason"))
		check("a pause", true)
		time.Sleep(2 * time.Second)
		must(s.b.Restrict(t.Context(), &s.job, backend.Restriction{Limit: 2, For: time.Hour, Reason: "reason"}))
		check("a restriction", true)
		part := request(&s.job)
		part.Share = share
		s.acquire(backend.OutcomeGranted, part)
		check("a share", true)
		must(s.b.Spend(t.Context(), &s.job, backend.Rate{N: 1, Per: time.Second, Burst: 1, Cost: 1}))
		check("a cost", true)
		_, err = s.b.Order(t.Context(), backend.TriggerRequest{Key: &s.job, Op: backend.TriggerNote, Entry: "q/1", Keep: time.Hour, Most: 10})
		must(err)
		check("a note", false)
		_, err = s.b.Order(t.Context(), backend.TriggerRequest{Key: &s.job, Op: backend.TriggerDone, Entry: "q/1", Number: 1, Keep: time.Hour, Most: 10})
		must(err)
		check("a done trigger", true)

		o := request(&s.once)
		g = s.acquire(backend.OutcomeGranted, o)
		s.release(ending(o, g))
		check("a release of a once key", true)
		s.acquire(backend.OutcomeGranted, o)
		s.b.Withdraw(backend.WithdrawRequest{Key: &s.once, ID: o.ID, Retention: time.Minute, Granted: true})
		synctest.Wait()
		check("a withdrawal of a once key", true)
	})
}

// listen subscribes the backend of the scene.
func listen(s *scene) <-chan backend.Notification {
	s.Helper()
	ch := make(chan backend.Notification, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.b.Listen(ctx, func(n backend.Notification) { ch <- n }) })
	s.Cleanup(func() { cancel(); wg.Wait() })
	if n := <-ch; n.Event != backend.EventSubscribed {
		s.Fatalf("notification %+v, want that the subscription is up", n)
	}
	return ch
}

// A notification is sent after its reason was written, and not if that failed.
func TestNotifiedAfterTheWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		ch := listen(s)
		r := request(&s.job)
		s.acquire(backend.OutcomeGranted, r)
		s.hook(func(method string) error {
			if method == "Write" {
				return errors.New("refused")
			}
			return nil
		}, nil)
		if _, err := s.b.Revoke(t.Context(), backend.RevokeRequest{Key: &s.job}); err == nil {
			t.Error("Revoke succeeds without a write")
		}
		synctest.Wait()
		select {
		case n := <-ch:
			t.Errorf("notification %+v without a write", n)
		default:
		}
		s.hook(nil, nil)
		if revoked, err := s.b.Revoke(t.Context(), backend.RevokeRequest{Key: &s.job}); err != nil || !revoked {
			t.Errorf("Revoke returns %t and error %v", revoked, err)
		}
		if n := <-ch; n.Event != backend.EventRevoked || n.Request != r.ID {
			t.Errorf("notification %+v, want the revocation", n)
		}
	})
}

// How many statements the frequent calls need.
func TestStatements(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		for _, step := range []struct {
			what string
			do   func(n map[string]int)
			want map[string]int
		}{
			{"acquire and release a free key", func(map[string]int) {
				r := request(&s.job)
				s.release(ending(r, s.acquire(backend.OutcomeGranted, r)))
			}, map[string]int{"Grant": 1, "Free": 1}},
			{"claim, complete and replay", func(map[string]int) {
				r := request(&s.once)
				g := s.acquire(backend.OutcomeGranted, r)
				if reply, err := s.b.Complete(t.Context(), backend.CompleteRequest{Key: r.Key, ID: r.ID, Token: g.Token, Record: []byte("r"), Keep: time.Hour, Plain: true}); err != nil || !reply.Released {
					t.Errorf("Complete returns %+v and error %v", reply, err)
				}
				if done := s.acquire(backend.OutcomeDone, request(&s.once)); string(done.Record) != "r" || done.Attempt != 1 {
					t.Errorf("the replay is %+v", done)
				}
			}, map[string]int{"Grant": 2, "Finish": 1, "Read": 1}},
			{"a busy reply", func(n map[string]int) {
				s.acquire(backend.OutcomeGranted, request(&s.job))
				clear(n)
				s.acquire(backend.OutcomeBusy, request(&s.job))
			}, map[string]int{"Grant": 1, "Read": 1}},
			{"renewals of shares of one key", func(n map[string]int) {
				key := s.b.Key(backend.KindExclusive, "shared")
				var rs []backend.RenewRequest
				for range 150 {
					r := request(&key)
					r.Share = backend.Share{Limit: 1000, Weight: 1}
					s.acquire(backend.OutcomeGranted, r)
					rs = append(rs, backend.RenewRequest{Key: &key, ID: r.ID, Lease: time.Minute, Retention: time.Hour, Share: r.Share})
				}
				clear(n)
				for _, reply := range s.b.Renew(t.Context(), rs) {
					if reply.Err != nil || reply.Verdict != backend.VerdictKept {
						t.Errorf("a renewal gets %+v", reply)
					}
				}
			}, map[string]int{"Read": 1, "Write": 1}},
			{"renewals of 150 keys", func(n map[string]int) {
				var rs []backend.RenewRequest
				for i := range 150 {
					key := s.b.Key(backend.KindExclusive, fmt.Sprint("key", i))
					r := request(&key)
					s.acquire(backend.OutcomeGranted, r)
					rs = append(rs, backend.RenewRequest{Key: &key, ID: r.ID, Lease: time.Minute, Retention: time.Hour})
				}
				clear(n)
				for i, reply := range s.b.Renew(t.Context(), rs) {
					if reply.Err != nil || reply.Verdict != backend.VerdictKept || s.rows[rs[i].Key.Stored[0]].Data != nil {
						t.Errorf("renewal %d gets %+v", i, reply)
					}
				}
			}, map[string]int{"Read": 2, "Write": 2}},
		} {
			n := s.statements()
			if step.do(n); !maps.Equal(n, step.want) {
				t.Errorf("%s: statements %v, want %v", step.what, n, step.want)
			}
		}
	})
}

// Data that no backend wrote is an error that a repeat does not change. Clear repairs it, and keeps the
// token.
// Shows: X2
func TestUnreadable(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		s.acquire(backend.OutcomeGranted, request(&s.once))
		token := s.now() + time.Hour.Microseconds()
		s.rows["x:job"] = rows.Row{Version: 1, Token: token, Data: []byte("x")}
		_, err := s.b.Acquire(t.Context(), request(&s.job))
		var data *backend.DataError
		if !errors.As(err, &data) || !s.b.Permanent(err) || data.Error() == "" {
			t.Errorf("Acquire returns error %v, want a permanent DataError", err)
		}
		if _, err := s.b.Inspect(t.Context(), &s.job, backend.NoRecord); !errors.As(err, &data) {
			t.Errorf("Inspect returns error %v, want a DataError", err)
		}
		var names []string
		err = nil
		for e, bad := range s.b.List(t.Context(), backend.ListRequest{}) {
			if bad != nil {
				err = bad
			} else {
				names = append(names, e.Name)
			}
		}
		if !slices.Equal(names, []string{"once"}) || !errors.As(err, &data) {
			t.Errorf("List yields %q and error %v, want the other key and a DataError", names, err)
		}
		if reply, err := s.b.Clear(t.Context(), backend.ClearRequest{Key: &s.job, Condition: backend.ClearIfSame}); !errors.As(err, &data) {
			t.Errorf("Clear of a key that was seen returns %d and error %v, want a DataError", reply, err)
		}
		for i, want := range []backend.ClearReply{backend.Cleared, backend.ClearChanged} {
			if reply, err := s.b.Clear(t.Context(), backend.ClearRequest{Key: &s.job, Condition: backend.ClearIfUnreadable}); err != nil || reply != want {
				t.Errorf("Clear %d returns %d and error %v, want %d", i, reply, err, want)
			}
		}
		if g := s.acquire(backend.OutcomeGranted, request(&s.job)); g.Token <= token {
			t.Errorf("token %d after the repair, want more than %d", g.Token, token)
		}
	})
}

// Purge deletes rows that were free for an hour, and keeps the others.
// Shows: I8
func TestPurge(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		purge := func(want int64, left ...string) {
			t.Helper()
			n, err := rows.Purge(t.Context(), store{s.table})
			if got := slices.Sorted(maps.Keys(s.rows)); err != nil || n != want || !slices.Equal(got, left) {
				t.Errorf("Purge returns %d and error %v, and leaves %q; want %d and %q", n, err, got, want, left)
			}
		}
		s.b.Close() // it purges too
		s.b = s.backend("M")
		freed := request(&s.job)
		freed.Retention = time.Minute
		s.release(ending(freed, s.acquire(backend.OutcomeGranted, freed)))
		held := request(&s.once)
		held.Lease, held.Retention = time.Minute, 10*time.Hour
		s.acquire(backend.OutcomeGranted, held)
		s.b.Close()
		purge(0, "o:once", "x:job")
		time.Sleep(59 * time.Minute)
		purge(0, "o:once", "x:job")
		time.Sleep(2 * time.Hour)
		purge(1, "o:once")
		s.rows["o:once"] = func(r rows.Row) rows.Row { r.Due = 0; return r }(s.rows["o:once"]) // a row that lives longer than it seemed
		purge(0, "o:once")
		if due := s.rows["o:once"].Due; due < s.now()/rows.Hour+7 {
			t.Errorf("the row is due in hour %d, now is %d", due, s.now()/rows.Hour)
		}
		time.Sleep(10 * time.Hour)
		purge(1)
	})
}

// A Backend purges every hour.
func TestPurgesItself(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		r := request(&s.job)
		r.Retention = time.Minute
		s.release(ending(r, s.acquire(backend.OutcomeGranted, r)))
		time.Sleep(4 * time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.rows) != 0 {
			t.Errorf("rows %+v are left", s.rows)
		}
	})
}

// A withdrawal is repeated until it is confirmed, and the next request of the key waits for it.
// Shows: R2
func TestWithdrawalIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		r := request(&s.job)
		s.acquire(backend.OutcomeGranted, r)
		up := time.Now().Add(10 * time.Second)
		s.hook(func(string) error {
			if time.Now().Before(up) {
				return errors.New("refused")
			}
			return nil
		}, nil)
		s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: r.ID, Retention: time.Minute, Granted: true})
		if reply, err := s.b.Acquire(t.Context(), request(&s.job)); err == nil || reply.Repeated {
			t.Errorf("Acquire returns %+v, want an error before it is sent", reply)
		}
		time.Sleep(11 * time.Second)
		s.acquire(backend.OutcomeGranted, request(&s.job))
	})
}

// After Close a command fails with ErrClosed, and what is not confirmed is reported.
func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		failed := 0
		b := rows.New(rows.Options{Options: backend.Options{Locker: "C", CleanupsFailed: func(n int, err error) {
			if failed += n; !errors.Is(err, backend.ErrClosed) {
				t.Errorf("error %v, want ErrClosed", err)
			}
		}}, Calls: store{s.table}, Ends: store{s.table}})
		r := request(&s.job)
		if _, err := b.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		s.hook(func(string) error { return errors.New("refused") }, nil)
		b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: r.ID, Retention: time.Minute, Granted: true})
		time.Sleep(time.Second)
		b.Close()
		if b.Report(); failed != 1 {
			t.Errorf("%d withdrawals failed, want 1", failed)
		}
		if _, err := b.Acquire(t.Context(), request(&s.job)); !errors.Is(err, backend.ErrClosed) || !b.Permanent(err) {
			t.Errorf("Acquire returns error %v, want ErrClosed", err)
		}
		if _, err := b.Inspect(t.Context(), &s.job, backend.NoRecord); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Inspect returns error %v, want ErrClosed", err)
		}
	})
}
