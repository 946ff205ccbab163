package backendtest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

func operators() []rule {
	return []rule{
		fast("a key that was never used is free", func(s *scene) {
			st := s.state(&s.job, backend.StateFree)
			s.check(st.Token == 0 && st.Holder == "" && st.Queue == 0 && !st.Died, "the state is %+v", st)
		}),
		fast("Revoke notifies the holder, which keeps the key", func(s *scene) {
			s.a.listen()
			r, _ := s.a.hold(&s.job)
			s.b.revoke(&s.job)
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: r.ID})
			s.check(s.state(&s.job, backend.StateHeld).Revoked, "Revoked is false")
		}),
		fast("Revoke of a free key is no error", func(s *scene) {
			s.b.revokes(false, backend.RevokeRequest{Key: &s.job})
			s.state(&s.job, backend.StateFree)
		}),
		fast("Revoke of a hold that was seen ends no newer one", func(s *scene) {
			s.a.listen()
			s.b.revokes(false, backend.RevokeRequest{Key: &s.job, Seen: 1})
			r, g := s.a.hold(&s.job)
			s.b.revokes(false, backend.RevokeRequest{Key: &s.job, Seen: g.Token - 1})
			s.a.getsNothing()
			s.a.renew(backend.VerdictKept, renewal(r, long))
			s.b.revokes(true, backend.RevokeRequest{Key: &s.job, Seen: g.Token})
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: r.ID})
			s.a.renew(backend.VerdictRevoked, renewal(r, long))
			s.a.end(r, g.Token)
			s.b.revokes(false, backend.RevokeRequest{Key: &s.job, Seen: g.Token})
			share, next := s.a.hold(&s.job, reader)
			s.b.revokes(false, backend.RevokeRequest{Key: &s.job, Seen: g.Token})
			s.a.renew(backend.VerdictKept, renewal(share, long))
			s.b.revokes(true, backend.RevokeRequest{Key: &s.job, Seen: next.Token})
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: share.ID})
		}),
		fast("Clear refuses a held key", func(s *scene) {
			s.a.hold(&s.job)
			s.clear(backend.ClearHeld, backend.ClearRequest{Key: &s.job})
		}),
		fast("Clear frees a cooling key", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(time.Hour)
			s.a.release(true, end)
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.b.hold(&s.job)
		}),
		fast("Clear forgets a record and its attempts", func(s *scene) {
			r, g := s.a.hold(&s.claim, digest("1"))
			s.a.complete(true, completion(r, g.Token))
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.claim})
			_, next := s.b.hold(&s.claim, digest("2"))
			s.check(next.Attempt == 1 && next.Token > g.Token, "the grant is %+v", next)
		}),
		fast("Clear forgets that a key was abandoned, but not its token", func(s *scene) {
			_, g := s.a.expired(&s.claim)
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.claim})
			_, next := s.b.hold(&s.claim)
			s.check(!next.Abandoned && next.Attempt == 1 && next.Token >= g.Token+backend.TokensPerGrant, "%+v after %+v", next, g)
		}),
		fast("Clear reserves the key for a waiter", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			waiter := s.b.wait(&s.job)
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(time.Hour)
			s.a.release(true, end)
			s.b.getsCooling(waiter, time.Hour)
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.b.getsTurn(waiter)
		}),
		fast("Clear keeps a reservation", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			waiter := s.b.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(waiter)
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.state(&s.job, backend.StateReserved)
			s.b.acquire(backend.OutcomeGranted, waiter)
		}),
		fast("Clear with a condition changes nothing if the key has changed", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			seen := s.state(&s.claim, backend.StateDone)
			for _, c := range []backend.ClearRequest{
				{Condition: backend.ClearIfSame, Token: seen.Token + 1, Done: true}, {Condition: backend.ClearIfSame, Token: seen.Token}, {Condition: backend.ClearIfUnreadable},
			} {
				c.Key = &s.claim
				s.clear(backend.ClearChanged, c)
			}
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.claim, Condition: backend.ClearIfSame, Token: seen.Token, Done: true})
			s.state(&s.claim, backend.StateFree)
		}),
		fast("Inspect returns the requested part of a record", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			c := completion(r, g.Token)
			c.Record = bytes.Repeat([]byte("0123456789abcdef"), 64)
			s.a.complete(true, c)
			for part, want := range map[backend.RecordPart]int{backend.NoRecord: 0, backend.RecordHead: 512, backend.WholeRecord: 1024} {
				st, err := s.b.Inspect(s.Context(), &s.claim, part)
				s.check(err == nil && bytes.Equal(st.Record, c.Record[:want]), "part %d is %d bytes, error %v", part, len(st.Record), err)
			}
		}),
		fast("a closed backend returns an error", func(s *scene) {
			s.a.Close()
			_, err := s.a.Acquire(s.Context(), *request(&s.job))
			s.check(err != nil, "Acquire returns no error")
			_, err = s.a.Inspect(s.Context(), &s.job, backend.NoRecord)
			s.check(err != nil, "Inspect returns no error")
		}),
	}
}

func lists() []rule {
	return []rule{
		fast("List yields keys that are not free", func(s *scene) {
			for i, kind := range []backend.Kind{backend.KindExclusive, backend.KindOnce} {
				r, g := s.a.hold(new(s.a.Key(kind, s.job.Name+"-end")))
				s.a.end(r, g.Token)
				s.a.hold(new(s.a.Key(kind, s.job.Name+"-held"+fmt.Sprint(i))))
				s.a.expired(new(s.a.Key(kind, s.job.Name+"-died")))
			}
			s.lists(backend.ListRequest{Match: s.job.Name + "*"}, "1 -held0 held", "2 -died abandoned", "2 -held1 held")
			s.lists(backend.ListRequest{Match: s.job.Name + "*", Free: true}, "1 -died free", "1 -held0 held", "2 -died abandoned", "2 -held1 held")
			s.lists(backend.ListRequest{Match: s.job.Name + "*", Kind: backend.KindOnce}, "2 -died abandoned", "2 -held1 held")
		}),
		fast("List matches names as they are stored", func(s *scene) {
			for _, name := range []string{"a b", "a{b", "ab", "a*b", "acb", "é"} {
				s.a.hold(new(s.a.Key(backend.KindExclusive, s.job.Name+name)))
			}
			for pattern, want := range map[string][]string{
				"a b":     {"a b"},
				"a?b":     {"a*b", "acb"},
				"a[a-c]b": {"acb"},
				"a[^c]b":  {"a*b"},
				`a\*b`:    {"a*b"},
				"a*b":     {"a b", "a*b", "a{b", "ab", "acb"},
				"a???b":   {"a b", "a{b"},
				"??????":  {"é"},
				"x":       nil,
			} {
				for i, name := range want {
					want[i] = "1 " + name + " held"
				}
				s.lists(backend.ListRequest{Match: s.job.Name + pattern}, want...)
			}
		}),
		fast("List yields a free key with parked entries only with Free", func(s *scene) {
			r, g := s.parked(&s.job, "1")
			s.a.end(r, g.Token)
			r, g = s.parked(&s.claim, "1")
			s.a.end(r, g.Token)
			s.lists(backend.ListRequest{Match: s.job.Name})
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true}, "1  free", "2  free")
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true, Kind: backend.KindOnce}, "2  free")
			s.lists(backend.ListRequest{Match: s.job.Name + "?*", Free: true})
		}),
		fast("List yields a free key with a restriction only with Free", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Hour})
			s.lists(backend.ListRequest{Match: s.job.Name})
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true}, "1  free")
			s.a.restrict(&s.job, backend.Restriction{})
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true})
		}),
		slow("List yields free keys of which only parked entries or a restriction are left", func(s *scene) {
			r, g := s.parked(&s.claim, "1")
			s.a.end(r, g.Token)
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: anHour})
			time.Sleep(anHour / 2) // the hashes have expired
			s.lists(backend.ListRequest{Match: s.job.Name})
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true}, "1  free", "2  free")
		}),
		fast("List yields a free key whose rate is in use", func(s *scene) {
			s.b.listen()
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			st := s.state(&s.job, backend.StateFree)
			s.check(st.RateFull > 0 && st.NextTurn == 0, "nothing waits: %+v", st)
			s.lists(backend.ListRequest{Match: s.job.Name}, "1  free")
			s.b.wait(&s.job, throttled(perMinute))
			st = s.state(&s.job, backend.StateFree)
			s.check(st.NextTurn > 0 && st.NextTurn <= st.RateFull, "a call waits: %+v", st)
			s.lists(backend.ListRequest{Match: s.job.Name}, "1  free")
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true}, "1  free")
		}),
		fast("List yields a free key with a queue only with Free", func(s *scene) {
			s.b.listen()
			s.c.listen()
			r, g := s.a.hold(&s.job)
			s.b.wait(&s.job)
			s.c.wait(&s.job)
			s.a.end(r, g.Token)
			s.until("the reservation ends", func() bool { return s.inspect(&s.job).State == backend.StateFree })
			s.lists(backend.ListRequest{Match: s.job.Name})
			s.lists(backend.ListRequest{Match: s.job.Name, Free: true}, "1  free")
		}),
		fast("List returns heads of records", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			c := completion(r, g.Token)
			c.Record = bytes.Repeat([]byte("r"), 1000)
			s.a.complete(true, c)
			for e, err := range s.b.List(s.Context(), backend.ListRequest{Match: s.claim.Name, RecordHeads: true}) {
				s.check(err == nil && e.State == backend.StateDone && len(e.Record) == 512, "the entry is %+v, error %v", e, err)
			}
		}),
	}
}

// lists checks what List yields.
func (s *scene) lists(r backend.ListRequest, want ...string) {
	s.Helper()
	got := s.list(r)
	slices.Sort(want)
	s.check(fmt.Sprint(got) == fmt.Sprint(want), "List with Match %q yields %q, want %q", r.Match, got, want)
}

func sharedOperators() []rule {
	return []rule{
		fast("Inspect returns the shares by their ends", func(s *scene) {
			s.a.hold(&s.job, limited(5, 2), named("two"))
			s.b.hold(&s.job, limited(9, 3), named("three"), func(r *backend.AcquireRequest) { r.Lease = long / 2 })
			st := s.weights(&s.job, 5)
			s.check(st.Holder == "three" && st.Locker == s.b.id && st.Remaining > long/2 && st.Remaining <= long, "the status is %+v", st)
			for i, want := range []backend.ShareHeld{
				{Share: backend.Share{Limit: 9, Weight: 3}, Locker: s.b.id, Holder: "three"},
				{Share: backend.Share{Limit: 5, Weight: 2}, Locker: s.a.id, Holder: "two"},
			} {
				got := st.Shares[i]
				s.check(got.Remaining > 0 && got.Remaining <= long/time.Duration(2-i) && got.HeldFor < long, "share %d is %+v", i, got)
				got.Remaining, got.HeldFor = 0, 0
				s.check(got == want, "share %d is %+v, want %+v", i, got, want)
			}
		}),
		fast("a revocation ends all shares", func(s *scene) {
			s.a.listen()
			s.b.listen()
			one, phase := s.a.hold(&s.job, reader)
			two, _ := s.b.hold(&s.job, limited(3, 2))
			s.c.revoke(&s.job)
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: one.ID})
			s.b.gets(backend.Notification{Event: backend.EventRevoked, Request: two.ID})
			s.a.renew(backend.VerdictRevoked, renewal(one, long))
			s.b.acquire(backend.OutcomeEnded, two)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, reader))
			s.a.endShare(one)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, reader))
			s.check(s.weights(&s.job, 2).Revoked, "Revoked is false")
			s.b.endShare(two)
			_, g := s.c.hold(&s.job, reader)
			s.check(g.Token > phase.Token, "%+v after %+v", g, phase)
		}),
		fast("a revocation ends with the last share that is held", func(s *scene) {
			s.a.listen()
			cooled, _ := s.a.hold(&s.job, limited(3, 1))
			held, _ := s.a.hold(&s.job, limited(3, 1))
			end := ending(cooled, 0)
			end.CoolUntil = time.Now().Add(time.Hour)
			s.a.release(true, end)
			s.c.revoke(&s.job)
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: held.ID})
			s.c.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			s.a.release(true, ending(held, 0))
			s.check(!s.weights(&s.job, 1).Revoked, "Revoked is true although no share is held")
			s.c.revokes(false, backend.RevokeRequest{Key: &s.job})
			s.c.hold(&s.job, limited(3, 1))
		}),
		fast("a clear serves the waiters for whom an expired share leaves room", func(s *scene) {
			s.b.listen()
			s.a.hold(&s.job, limited(2, 1))
			s.a.hold(&s.job, limited(2, 1), expiring)
			w := s.b.wait(&s.job, limited(2, 1))
			time.Sleep(short + 20*time.Millisecond)
			s.clear(backend.ClearHeld, backend.ClearRequest{Key: &s.job})
			s.b.getsTurn(w)
			s.b.acquire(backend.OutcomeGranted, w)
		}),
		fast("a shared key is not cleared while a share has a holder", func(s *scene) {
			r, phase := s.a.hold(&s.job, reader)
			s.clear(backend.ClearHeld, backend.ClearRequest{Key: &s.job})
			end := ending(r, 0)
			end.CoolUntil = time.Now().Add(time.Hour)
			s.a.release(true, end)
			s.b.acquire(backend.OutcomeBusy, request(&s.job))
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			_, g := s.b.hold(&s.job)
			s.check(g.Token > phase.Token, "%+v after %+v", g, phase)
		}),
	}
}
