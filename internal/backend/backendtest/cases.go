package backendtest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// cases returns all rules.
func cases() []rule {
	return slices.Concat(grants(), takeovers(), renewals(), ends(), queues(), turns(), records(), rotations(), operators(), forces(), lists(), parking(), parkedReplies(), triggers(), adoptions(), shares(), rates(), pauses(), restrictions())
}

func fast(name string, do func(*scene)) rule { return rule{name: name, do: do} }
func slow(name string, do func(*scene)) rule { return rule{name: name, slow: true, do: do} }

func grants() []rule {
	return []rule{
		fast("a free key is granted", func(s *scene) {
			_, g := s.a.hold(&s.job)
			s.check(g.Token > 0 && g.Attempt == 1 && !g.Abandoned, "the grant is %+v", g)
			s.check(s.state(&s.job, backend.StateHeld).Token == g.Token, "Inspect returns another token")
		}),
		fast("a grant has at least the token of the request", func(s *scene) {
			floor := time.Now().Add(time.Hour).UnixMicro() // ahead of the clock of the backend
			r, g := s.a.hold(&s.job, atLeast(floor))
			s.check(g.Token == floor && !g.Plain, "the grant is %+v", g)
			s.a.end(r, g.Token+used)
			next := request(&s.job, atLeast(floor-1)) // smaller than the last token
			g = s.b.acquire(backend.OutcomeGranted, next)
			s.check(g.Token > floor+used, "token %d after %d", g.Token, floor+used)
			after := request(&s.job, atLeast(floor+time.Minute.Microseconds()))
			end := ending(next, g.Token)
			end.Next = after
			reply, err := s.b.Release(s.Context(), *end)
			s.check(err == nil && reply.Released && reply.Next.Token == after.Floor, "the end and the next grant: %+v, %v", reply, err)
			s.b.end(after, reply.Next.Token)
		}),
		fast("a held key is busy", func(s *scene) {
			s.a.hold(&s.job, named("me"))
			r := s.b.acquire(backend.OutcomeBusy, request(&s.job))
			s.check(r.Holder == "me" && r.Remaining > 0 && r.Remaining <= long && r.HeldFor < long && r.Queue == 0, "the reply is %+v", r)
		}),
		fast("the kinds are two namespaces", func(s *scene) {
			s.a.hold(&s.job)
			s.b.hold(&s.claim)
		}),
		fast("names are not mixed up", func(s *scene) {
			for _, suffix := range []string{" ", "%20", "{", "}", "é", "%"} {
				k := s.a.Key(backend.KindExclusive, s.job.Name+suffix)
				s.a.hold(&k)
			}
		}),
		fast("a repeat gets the same grant", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			again := s.a.acquire(backend.OutcomeGranted, r)
			s.check(again.Token == g.Token && again.Attempt == 1, "%+v, then %+v", g, again)
		}),
		fast("a repeat never shortens the lease", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			r.Lease = time.Second
			s.a.acquire(backend.OutcomeGranted, r)
			s.check(s.inspect(&s.job).Remaining > time.Second, "the lease is shorter")
		}),
		fast("a repeat never revives a lease", func(s *scene) {
			r, _ := s.a.expired(&s.job)
			s.a.acquire(backend.OutcomeEnded, r)
		}),
		fast("a repeat of a revoked grant has ended", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.b.revoke(&s.job)
			s.a.acquire(backend.OutcomeEnded, r)
		}),
		fast("a late duplicate after the end has ended", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token)
			end.Repeated = true
			s.a.release(true, end)
			s.a.acquire(backend.OutcomeEnded, r)
			s.state(&s.job, backend.StateFree)
		}),
		fast("sixteen ended ids are remembered", func(s *scene) {
			var all []*backend.AcquireRequest
			for range 17 {
				r, g := s.a.hold(&s.job)
				end := ending(r, g.Token)
				end.Repeated = true
				s.a.release(true, end)
				all = append(all, r)
			}
			for _, r := range all[1:] {
				s.a.acquire(backend.OutcomeEnded, r)
			}
			s.a.acquire(backend.OutcomeGranted, all[0])
		}),
		slow("an ended id is remembered for a minute", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token)
			end.Repeated, end.Retention = true, time.Second
			s.a.release(true, end)
			time.Sleep(59 * time.Second)
			s.a.acquire(backend.OutcomeEnded, r)
			time.Sleep(2 * time.Second)
			s.a.acquire(backend.OutcomeGranted, r)
		}),
	}
}

func takeovers() []rule {
	return []rule{
		fast("an expired key is granted to the next request", func(s *scene) {
			_, g := s.a.expired(&s.job)
			s.check(s.state(&s.job, backend.StateFree).Died, "Died is false")
			_, next := s.b.hold(&s.job)
			s.check(next.Abandoned && next.Token >= g.Token+backend.TokensPerGrant, "%+v after %+v", next, g)
		}),
		fast("a takeover is the next attempt", func(s *scene) {
			s.a.expired(&s.claim)
			s.check(s.state(&s.claim, backend.StateAbandoned).KeepLeft > 0, "KeepLeft is 0")
			_, next := s.b.hold(&s.claim)
			s.check(next.Abandoned && next.Attempt == 2, "the grant is %+v", next)
		}),
		fast("at most once refuses a takeover", func(s *scene) {
			s.a.expired(&s.claim, named("me"))
			r := s.b.acquire(backend.OutcomeAbandoned, request(&s.claim, atMostOnce))
			s.check(r.Holder == "me" && r.HeldFor >= short && r.Attempt == 1, "the reply is %+v", r)
		}),
		fast("a takeover that expires is taken over too", func(s *scene) {
			s.a.expired(&s.claim)
			s.b.expired(&s.claim)
			_, g := s.c.hold(&s.claim)
			s.check(g.Abandoned && g.Attempt == 3, "the grant is %+v", g)
		}),
		fast("a takeover ends the revocation", func(s *scene) {
			s.a.hold(&s.job, func(r *backend.AcquireRequest) { r.Lease = 2 * short })
			s.b.revoke(&s.job)
			time.Sleep(2*short + 20*time.Millisecond)
			s.b.hold(&s.job)
			s.check(!s.inspect(&s.job).Revoked, "the next hold is revoked")
		}),
		fast("a held key with another fingerprint mismatches", func(s *scene) {
			s.a.hold(&s.claim, digest("1"))
			r := s.b.acquire(backend.OutcomeMismatch, request(&s.claim, digest("2")))
			s.check(!r.IsDone, "the key is done")
		}),
		fast("an abandoned key with another fingerprint mismatches", func(s *scene) {
			s.a.expired(&s.claim, digest("1"))
			s.b.acquire(backend.OutcomeMismatch, request(&s.claim, digest("2")))
			s.b.hold(&s.claim, digest("1"))
		}),
		fast("an empty fingerprint is not compared", func(s *scene) {
			s.a.hold(&s.claim, digest("1"))
			r := s.b.acquire(backend.OutcomeBusy, request(&s.claim))
			s.check(r.Fingerprint == "1", "the reply is %+v", r)
		}),
	}
}

func renewals() []rule {
	return []rule{
		fast("a renewal extends the lease", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.a.renew(backend.VerdictKept, renewal(r, time.Hour))
			s.check(s.inspect(&s.job).Remaining > long, "the lease is not extended")
		}),
		fast("a renewal never shortens the lease", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.a.renew(backend.VerdictKept, renewal(r, time.Second))
			s.a.renew(backend.VerdictKept, renewal(r, 0))
			s.check(s.inspect(&s.job).Remaining > time.Second, "the lease is shorter")
		}),
		fast("a renewal never revives a lease", func(s *scene) {
			r, _ := s.a.expired(&s.job)
			s.a.renew(backend.VerdictLost, renewal(r, long))
			s.state(&s.job, backend.StateFree)
		}),
		fast("a renewal of a key that another request has is lost", func(s *scene) {
			r, _ := s.a.expired(&s.job)
			s.b.hold(&s.job)
			s.a.renew(backend.VerdictLost, renewal(r, long))
			s.a.renew(backend.VerdictLost, backend.RenewRequest{Key: &s.claim, ID: r.ID, Lease: long, Retention: day})
		}),
		fast("a revoked hold is not renewed", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.b.revoke(&s.job)
			s.a.renew(backend.VerdictRevoked, renewal(r, time.Hour))
			s.check(s.inspect(&s.job).Remaining <= long, "the lease is extended")
		}),
		fast("a renewal publishes a hand-off", func(s *scene) {
			r, g := s.a.hold(&s.job)
			renew := renewal(r, long)
			renew.Token, renew.Holder = g.Token+used, "the next one"
			s.a.renew(backend.VerdictKept, renew)
			st := s.inspect(&s.job)
			s.check(st.Token == renew.Token && st.Holder == renew.Holder, "the state is %+v", st)
		}),
		fast("a renewal of an earlier hold changes neither token nor holder", func(s *scene) {
			for _, edit := range [][]func(*backend.AcquireRequest){nil, {queued}} { // a plain hold, and one with a queue
				r, g := s.a.hold(&s.job, edit...)
				if edit != nil {
					s.b.acquire(backend.OutcomeBusy, request(&s.job, queued))
				}
				renew := renewal(r, long)
				renew.Token, renew.Holder = g.Token+used, "the later one"
				s.a.renew(backend.VerdictKept, renew)
				renew.Token, renew.Holder = g.Token+1, "the earlier one"
				s.a.renew(backend.VerdictKept, renew)
				st := s.inspect(&s.job)
				s.check(st.Token == g.Token+used && st.Holder == "the later one", "the state is %+v", st)
				s.a.end(r, g.Token+used)
			}
		}),
		fast("each lease of a batch has its own verdict", func(s *scene) {
			one, g := s.a.hold(&s.job)
			two, _ := s.a.hold(&s.claim)
			s.b.revoke(&s.claim)
			rs := []backend.RenewRequest{renewal(two, long), {Key: &s.job, ID: two.ID, Lease: long, Retention: day}, renewal(one, long)}
			rs[2].Token, rs[2].Holder = g.Token+used, "the next one"
			want := []backend.RenewReply{{Verdict: backend.VerdictRevoked}, {Verdict: backend.VerdictLost}, {Verdict: backend.VerdictKept}}
			got := s.a.Renew(s.Context(), rs)
			s.check(slices.Equal(got, want), "the replies are %+v, want %+v", got, want)
			s.check(s.inspect(&s.job).Holder == "the next one", "the hand-off is not published")
		}),
		fast("Extend is a renewal of one lease", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			renew := renewal(r, time.Hour)
			reply, sent := s.a.Extend(s.Context(), renew)
			s.check(reply.Err == nil && reply.Verdict == backend.VerdictKept && !sent.IsZero(), "Extend returns %+v, %v", reply, sent)
			s.check(s.inspect(&s.job).Remaining > long, "the lease is not extended")
		}),
	}
}

func ends() []rule {
	return []rule{
		fast("a release frees the key", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.a.end(r, g.Token+used)
			st := s.state(&s.job, backend.StateFree)
			s.check((st.Token == g.Token+used || st.Token == 0) && st.Holder == "" && !st.Died, "the state is %+v", st) // 0: no data is left, because the clock is past the token
			_, next := s.b.hold(&s.job)
			s.check(next.Token > g.Token+used && !next.Abandoned, "%+v after token %d", next, g.Token+used)
		}),
		fast("only the holder releases", func(s *scene) {
			r, g := s.a.expired(&s.job)
			s.b.hold(&s.job)
			s.a.release(false, ending(r, g.Token))
			s.state(&s.job, backend.StateHeld)
		}),
		fast("the holder releases after the lease expired too", func(s *scene) {
			r, g := s.a.expired(&s.claim)
			s.a.end(r, g.Token)
			_, next := s.b.hold(&s.claim)
			s.check(!next.Abandoned, "the grant is %+v", next)
		}),
		fast("a failed run counts as an attempt", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.end(r, g.Token)
			_, next := s.b.hold(&s.claim)
			s.check(next.Attempt == 2 && !next.Abandoned, "the grant is %+v", next)
		}),
		fast("a release of once forgets the fingerprint", func(s *scene) {
			r, g := s.a.hold(&s.claim, digest("1"))
			s.a.end(r, g.Token)
			s.b.hold(&s.claim, digest("2"))
		}),
		fast("an abandoned exclusive key is free", func(s *scene) {
			r, g := s.a.hold(&s.job, named("me"))
			s.a.abandon(r, g.Token)
			st := s.state(&s.job, backend.StateFree)
			s.check(st.Died && st.Holder == "me", "the state is %+v", st)
			_, next := s.b.hold(&s.job)
			s.check(next.Abandoned, "the grant is %+v", next)
		}),
		fast("an abandoned once key is taken over or refused", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.abandon(r, g.Token)
			s.state(&s.claim, backend.StateAbandoned)
			s.b.acquire(backend.OutcomeAbandoned, request(&s.claim, atMostOnce))
			_, next := s.b.hold(&s.claim)
			s.check(next.Abandoned && next.Attempt == 2, "the grant is %+v", next)
		}),
		fast("a cooling key is busy until its end", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(4 * short)
			s.a.release(true, end)
			s.state(&s.job, backend.StateCooling)
			busy := s.b.acquire(backend.OutcomeBusy, request(&s.job))
			s.check(busy.Holder == "" && busy.HeldFor == 0 && busy.Remaining > 0 && busy.Remaining <= 4*short, "the reply is %+v", busy)
			time.Sleep(busy.Remaining + 20*time.Millisecond)
			s.b.hold(&s.job)
		}),
		fast("an abandoned key is not cooling", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.a.release(true, &backend.ReleaseRequest{
				Key: r.Key, ID: r.ID, Token: g.Token, Retention: day, Abandon: true, CoolUntil: time.Now().Add(time.Hour),
			})
			s.b.hold(&s.job)
		}),
		slow("an abandoned key is forgotten after its retention", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.abandon(r, g.Token)
			time.Sleep(day + time.Second)
			s.state(&s.claim, backend.StateFree)
			_, next := s.b.hold(&s.claim)
			s.check(!next.Abandoned && next.Attempt == 1 && next.Token > g.Token, "the grant is %+v", next)
		}),
		slow("a refusal renews the mark of an abandoned key, and never shortens it", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.abandon(r, g.Token)
			for range 3 {
				time.Sleep(day - time.Minute)
				s.b.acquire(backend.OutcomeAbandoned, request(&s.claim, atMostOnce))
			}
			brief := request(&s.claim, atMostOnce)
			brief.Retention = time.Second
			s.b.acquire(backend.OutcomeAbandoned, brief)
			time.Sleep(day)
			s.state(&s.claim, backend.StateAbandoned)
		}),
		fast("a withdrawn grant does not count as a run", func(s *scene) {
			r, _ := s.a.hold(&s.claim)
			s.a.withdraw(r, false, func(st backend.Status) bool { return st.State == backend.StateFree })
			_, next := s.b.hold(&s.claim)
			s.check(next.Attempt == 1 && !next.Abandoned, "the grant is %+v", next)
		}),
		fast("a withdrawn takeover stays abandoned", func(s *scene) {
			s.a.expired(&s.claim)
			r, _ := s.b.hold(&s.claim)
			s.b.withdraw(r, false, func(st backend.Status) bool { return st.State == backend.StateAbandoned })
			s.c.acquire(backend.OutcomeAbandoned, request(&s.claim, atMostOnce))
			_, next := s.c.hold(&s.claim)
			s.check(next.Attempt == 2, "the grant is %+v", next)
		}),
		fast("a late duplicate of a withdrawn request has ended", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.a.withdraw(r, true, func(st backend.Status) bool { return st.State == backend.StateFree })
			s.a.acquire(backend.OutcomeEnded, r)
		}),
	}
}
