package backendtest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// limited changes a request into one for a share.
func limited(limit, weight int) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Share = backend.Share{Limit: limit, Weight: weight} }
}

func reader(r *backend.AcquireRequest) { limited(backend.Unlimited, 1)(r) }

// endShare releases a share.
func (p *process) endShare(r *backend.AcquireRequest) {
	p.Scene.Helper()
	p.end(r, 0)
}

// weights checks that a key is shared, and the sum of the weights.
func (s *scene) weights(k *backend.Key, want int) backend.Status {
	s.Helper()
	st := s.state(k, backend.StateShared)
	s.check(st.Weights == want, "the weights are %d, want %d", st.Weights, want)
	return st
}

func shares() []rule {
	return slices.Concat(sharing(), lateShares(), phases(), sharedQueues(), sharedEnds(), sharedOperators(), manyExpired())
}

// sharing has the cases of the contract: a free key, an exclusive hold, and shares with and without
// a queue.
func sharing() []rule {
	return []rule{
		fast("a share of a free key is granted", func(s *scene) {
			r, g := s.a.hold(&s.job, limited(3, 2))
			s.check(g.Token > 0 && g.Attempt == 1 && !g.Abandoned && g.Phase == r.ID, "the grant is %+v", g)
			s.check(s.weights(&s.job, 2).Token == g.Token, "Inspect returns another token")
		}),
		fast("shares are granted as far as they fit", func(s *scene) {
			_, first := s.a.hold(&s.job, limited(3, 2), named("a"))
			r, second := s.b.hold(&s.job, limited(3, 1), named("b"))
			s.check(second.Token == first.Token && second.Phase == first.Phase, "%+v beside %+v", second, first)
			busy := s.c.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			s.check(busy.Shares == 3 && busy.Holder == "b" && busy.Locker == s.b.id && busy.Remaining > 0 && busy.Remaining <= long, "the reply is %+v", busy)
			s.b.endShare(r)
			s.c.hold(&s.job, limited(3, 1))
			s.weights(&s.job, 3)
		}),
		fast("a share has room by its own limit", func(s *scene) {
			s.a.hold(&s.job, reader)
			s.a.hold(&s.job, reader)
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(2, 1)))
			s.b.hold(&s.job, limited(3, 1))
			s.c.hold(&s.job, reader)
			s.weights(&s.job, 4)
		}),
		fast("a share waits for an exclusive hold", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job, named("me"))
			w := request(&s.job, reader, queued)
			busy := s.b.acquire(backend.OutcomeBusy, w)
			s.check(busy.Holder == "me" && busy.Locker == s.a.id && busy.Shares == 0 && busy.Queue == 1, "the reply is %+v", busy)
			s.a.end(r, g.Token)
			s.b.getsTurn(w)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, reader))
			s.b.acquire(backend.OutcomeGranted, w)
			s.check(s.weights(&s.job, 1).Queue == 0, "the request is still in the queue")
		}),
		fast("an exclusive request waits for all shares", func(s *scene) {
			s.c.listen()
			one, _ := s.a.hold(&s.job, reader)
			two, _ := s.b.hold(&s.job, limited(2, 1), named("b"))
			w := request(&s.job, queued)
			busy := s.c.acquire(backend.OutcomeBusy, w)
			s.check(busy.Shares == 2 && busy.Holder == "b" && busy.Queue == 1, "the reply is %+v", busy)
			s.a.endShare(one)
			s.c.acquire(backend.OutcomeBusy, w)
			s.b.endShare(two)
			s.c.getsTurn(w)
			s.c.acquire(backend.OutcomeGranted, w)
			s.state(&s.job, backend.StateHeld)
		}),
		fast("a share waits behind the queue", func(s *scene) {
			s.a.hold(&s.job, reader)
			s.b.wait(&s.job)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, reader))
			s.weights(&s.job, 1)
		}),
		fast("a repeated request for a share is granted once", func(s *scene) {
			r, g := s.a.hold(&s.job, limited(3, 2))
			r.Lease = time.Second
			again := s.a.acquire(backend.OutcomeGranted, r)
			s.check(again.Token == g.Token && again.Phase == g.Phase, "%+v, then %+v", g, again)
			s.check(s.weights(&s.job, 2).Remaining > time.Second, "the share ends earlier")
		}),
		fast("a late duplicate after the end of a share has ended", func(s *scene) {
			r, _ := s.a.hold(&s.job, reader)
			other, _ := s.b.hold(&s.job, reader)
			end := ending(r, 0)
			end.Repeated = true
			s.a.release(true, end)
			s.a.release(false, end)
			s.a.acquire(backend.OutcomeEnded, r)
			s.weights(&s.job, 1)
			s.b.endShare(other)
			s.a.acquire(backend.OutcomeEnded, r)
			s.state(&s.job, backend.StateFree)
		}),
	}
}

func lateShares() []rule {
	return []rule{
		fast("a late duplicate that waited when its request ended has ended", func(s *scene) {
			s.a.listen()
			r, _ := s.a.hold(&s.job, limited(2, 1), queued, expiring)
			s.b.hold(&s.job, limited(2, 1))
			time.Sleep(short + 20*time.Millisecond)
			other, _ := s.c.hold(&s.job, limited(2, 1))
			s.a.acquire(backend.OutcomeBusy, r)
			end := ending(r, 0)
			end.Repeated = true
			s.a.release(false, end)
			s.c.endShare(other)
			s.a.getsTurn(r)
			s.a.acquire(backend.OutcomeEnded, r)
			time.Sleep(backend.ReserveTime + 20*time.Millisecond)
			s.weights(&s.job, 1)
		}),
	}
}

func phases() []rule {
	return []rule{
		fast("the token of a phase is between those of the holds beside it", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token+used)
			end.Repeated = true // so that the key remembers the tokens
			s.a.release(true, end)
			one, phase := s.b.hold(&s.job, reader)
			two, beside := s.c.hold(&s.job, reader)
			s.b.endShare(one)
			three, after := s.b.hold(&s.job, reader)
			s.check(phase.Token > g.Token+used && beside.Token == phase.Token && after.Token == phase.Token, "%+v, %+v and %+v after %+v", phase, beside, after, g)
			s.c.endShare(two)
			s.b.endShare(three)
			one, second := s.b.hold(&s.job, reader)
			s.check(second.Token > phase.Token && second.Phase == one.ID, "%+v after %+v", second, phase)
			s.b.endShare(one)
			_, last := s.a.hold(&s.job)
			s.check(last.Token > second.Token, "%+v after %+v", last, second)
		}),
		fast("an abandoned hold is reported until an exclusive hold ends", func(s *scene) {
			_, g := s.a.expired(&s.job)
			r, phase := s.b.hold(&s.job, reader)
			s.check(phase.Abandoned && phase.Token >= g.Token+backend.TokensPerGrant, "%+v after %+v", phase, g)
			s.b.endShare(r)
			w, next := s.c.hold(&s.job)
			s.check(next.Abandoned, "the phase hides that the hold was abandoned")
			s.c.end(w, next.Token)
			_, phase = s.b.hold(&s.job, reader)
			s.check(!phase.Abandoned, "the phase is a takeover")
		}),
		fast("an expired share leaves the phase", func(s *scene) {
			_, phase := s.b.hold(&s.job, limited(2, 1))
			r, _ := s.a.expired(&s.job, limited(2, 1))
			s.a.renew(backend.VerdictLost, renewal(r, long))
			_, g := s.c.hold(&s.job, limited(2, 1))
			s.check(g.Token == phase.Token && !g.Abandoned, "%+v beside %+v", g, phase)
			s.a.release(false, ending(r, 0))
			s.weights(&s.job, 2)
		}),
		fast("a renewal keeps one share", func(s *scene) {
			r, _ := s.a.hold(&s.job, limited(2, 1), expiring)
			s.b.hold(&s.job, limited(2, 1), expiring)
			s.a.renew(backend.VerdictKept, renewal(r, long))
			s.a.renew(backend.VerdictKept, renewal(r, time.Second))
			time.Sleep(short + 20*time.Millisecond)
			s.check(s.weights(&s.job, 1).Remaining > time.Second, "the renewal made the share shorter")
			s.c.hold(&s.job, limited(2, 1))
		}),
		fast("an exclusive request takes a phase that expired", func(s *scene) {
			_, phase := s.a.expired(&s.job, reader)
			r, g := s.b.hold(&s.job)
			s.check(!g.Abandoned && g.Token > phase.Token, "%+v after %+v", g, phase)
			s.b.end(r, g.Token)
			s.c.hold(&s.job, limited(1, 1))
		}),
	}
}

func sharedQueues() []rule {
	return []rule{
		fast("readers behind a writer are granted together", func(s *scene) {
			s.b.listen()
			s.c.listen()
			r, g := s.a.hold(&s.job)
			one, two, three := s.b.wait(&s.job, reader), s.c.wait(&s.job, reader), s.c.wait(&s.job, limited(3, 1))
			four, writer := s.c.wait(&s.job, limited(3, 1)), s.a.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(one)
			phase := s.b.acquire(backend.OutcomeGranted, one)
			s.c.getsTurn(two)
			s.c.getsTurn(three)
			s.c.getsNothing() // the limit of the fourth request is 3
			s.check(s.weights(&s.job, 3).Queue == 2, "the queue does not have two waiters")
			for _, r := range []*backend.AcquireRequest{two, three} {
				s.check(s.c.acquire(backend.OutcomeGranted, r).Token == phase.Token, "%s has another token", r.ID)
			}
			s.a.acquire(backend.OutcomeBusy, writer)
			s.b.endShare(one)
			s.c.getsTurn(four)
		}),
		fast("a writer that gives up lets the readers behind it in", func(s *scene) {
			s.c.listen()
			s.a.hold(&s.job, reader)
			w := s.b.wait(&s.job)
			one, two := s.c.wait(&s.job, reader), s.c.wait(&s.job, reader)
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: w.ID, Retention: time.Minute})
			s.c.getsTurn(one)
			s.c.getsTurn(two)
			s.check(s.weights(&s.job, 3).Queue == 0, "the queue is not empty")
		}),
		fast("a request for a share that gives up lets others in", func(s *scene) {
			s.c.listen()
			s.a.hold(&s.job, limited(3, 1))
			heavy := s.b.wait(&s.job, limited(3, 3))
			light := s.c.wait(&s.job, limited(3, 1))
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: heavy.ID, Retention: time.Minute, Share: heavy.Share})
			s.c.getsTurn(light)
			s.weights(&s.job, 2)
		}),
		fast("a heavy request is not overtaken", func(s *scene) {
			s.b.listen()
			s.c.listen()
			one, _ := s.a.hold(&s.job, limited(3, 1))
			two, _ := s.a.hold(&s.job, limited(3, 1))
			heavy, light := s.b.wait(&s.job, limited(3, 3)), s.c.wait(&s.job, limited(3, 1))
			s.a.endShare(one)
			s.c.acquire(backend.OutcomeBusy, light)
			s.a.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			s.a.endShare(two)
			s.b.getsTurn(heavy)
			s.b.acquire(backend.OutcomeGranted, heavy)
			s.c.getsNothing()
			s.b.endShare(heavy)
			s.c.getsTurn(light)
			s.c.acquire(backend.OutcomeGranted, light)
		}),
		fast("a share that is reserved for a waiter expires", func(s *scene) {
			s.b.listen()
			s.a.hold(&s.job, limited(2, 1))
			r, _ := s.a.hold(&s.job, limited(2, 1))
			w := s.b.wait(&s.job, limited(2, 1))
			s.a.endShare(r)
			s.b.getsTurn(w)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, limited(2, 1)))
			time.Sleep(backend.ReserveTime + 20*time.Millisecond)
			s.c.hold(&s.job, limited(2, 1))
			s.b.acquire(backend.OutcomeBusy, w)
		}),
		slow("the first waiter is dropped after 5 s of silence", func(s *scene) {
			s.a.hold(&s.job, reader)
			s.b.wait(&s.job)
			r := s.c.wait(&s.job, reader)
			time.Sleep(4900 * time.Millisecond)
			s.c.acquire(backend.OutcomeBusy, r)
			time.Sleep(200 * time.Millisecond)
			s.c.acquire(backend.OutcomeGranted, r)
			s.check(s.weights(&s.job, 2).Queue == 0, "the queue is not empty")
		}),
		slow("the first waiter keeps its place while it repeats its request", func(s *scene) {
			s.a.hold(&s.job, reader)
			w := s.b.wait(&s.job)
			r := s.c.wait(&s.job, reader)
			for range 6 {
				time.Sleep(2 * time.Second)
				s.b.acquire(backend.OutcomeBusy, w)
				s.c.acquire(backend.OutcomeBusy, r)
			}
		}),
		fast("a phase that expires is reserved for the first waiter", func(s *scene) {
			s.b.listen()
			for _, edit := range []func(*backend.AcquireRequest){limited(1, 1), func(*backend.AcquireRequest) {}} {
				s.a.hold(&s.job, limited(1, 1), expiring)
				w := s.b.wait(&s.job, edit)
				time.Sleep(short + 20*time.Millisecond)
				s.c.acquire(backend.OutcomeBusy, request(&s.job, limited(1, 1)))
				s.b.getsTurn(w)
				s.state(&s.job, backend.StateReserved)
				s.b.end(w, s.b.acquire(backend.OutcomeGranted, w).Token)
			}
		}),
		fast("a withdrawal reserves a phase that expired", func(s *scene) {
			s.b.listen()
			for _, edit := range []func(*backend.AcquireRequest){limited(1, 1), func(*backend.AcquireRequest) {}} {
				s.a.hold(&s.job, limited(1, 1), expiring)
				withdrawn, w := s.c.wait(&s.job, edit), s.b.wait(&s.job, limited(1, 1))
				time.Sleep(short + 20*time.Millisecond)
				s.c.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: withdrawn.ID, Retention: time.Minute, Share: withdrawn.Share})
				s.b.getsTurn(w)
				s.b.acquire(backend.OutcomeGranted, w)
				s.b.endShare(w)
			}
		}),
	}
}

func sharedEnds() []rule {
	return []rule{
		fast("a share that cools keeps its place", func(s *scene) {
			s.a.hold(&s.job, reader)
			r, _ := s.a.hold(&s.job, limited(2, 1))
			end := ending(r, 0)
			end.CoolUntil = time.Now().Add(short)
			s.a.release(true, end)
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(2, 1)))
			s.a.renew(backend.VerdictLost, renewal(r, long))
			st := s.weights(&s.job, 2)
			s.check(len(st.Shares) == 2 && st.Shares[0].Cooling && st.Shares[0].Remaining <= short && !st.Shares[1].Cooling, "the shares are %+v", st.Shares)
			time.Sleep(short + 20*time.Millisecond)
			s.b.hold(&s.job, limited(2, 1))
		}),
		fast("the first waiter is notified when the first share has cooled", func(s *scene) {
			s.b.listen()
			one, _ := s.a.hold(&s.job, limited(2, 1))
			two, _ := s.a.hold(&s.job, limited(2, 1))
			w, behind := s.b.wait(&s.job, limited(2, 1)), s.b.wait(&s.job, limited(2, 1))
			end := ending(one, 0)
			end.CoolUntil = time.Now().Add(time.Minute)
			s.a.release(true, end)
			s.b.getsCooling(w, time.Minute)
			later := ending(two, 0)
			later.CoolUntil = time.Now().Add(2 * time.Minute)
			s.a.release(true, later)
			s.b.getsNothing() // the first share still cools for a minute
			s.check(s.b.acquire(backend.OutcomeBusy, w).Place == 1, "the first waiter is not the first")
			s.check(s.b.acquire(backend.OutcomeBusy, behind).Place == 2, "the second waiter is not behind the first")
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: w.ID, Retention: time.Minute, Share: w.Share})
			s.b.getsCooling(behind, time.Minute)
		}),
		fast("a waiter for the whole key is notified when the last share has cooled", func(s *scene) {
			s.b.listen()
			one, _ := s.a.hold(&s.job, limited(3, 1))
			two, _ := s.a.hold(&s.job, limited(3, 1))
			w := s.b.wait(&s.job)
			end := ending(one, 0)
			end.CoolUntil = time.Now().Add(time.Minute)
			s.a.release(true, end)
			s.b.getsNothing() // a share is held
			s.a.endShare(two)
			s.b.getsCooling(w, time.Minute)
			s.check(s.b.acquire(backend.OutcomeBusy, w).Place == 1, "the waiter is not the first")
		}),
		fast("a withdrawn share leaves the phase", func(s *scene) {
			s.c.listen()
			s.b.hold(&s.job, limited(2, 1))
			r, _ := s.a.hold(&s.job, limited(2, 1))
			w := s.c.wait(&s.job, limited(2, 1))
			s.a.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: r.ID, Retention: time.Minute, Granted: true, Repeated: true, Share: r.Share})
			s.c.getsTurn(w)
			s.a.acquire(backend.OutcomeEnded, r)
			s.weights(&s.job, 2)
		}),
		fast("a share is released by its own request", func(s *scene) {
			r, _ := s.a.hold(&s.job, reader)
			s.b.release(false, ending(request(&s.job, reader), 0))
			s.b.release(false, ending(request(&s.job), 0))
			s.weights(&s.job, 1)
			s.a.endShare(r)
			s.a.release(false, ending(r, 0))
			s.state(&s.job, backend.StateFree)
		}),
		fast("a share is not released as a hold alone, or the reverse", func(s *scene) {
			r, g := s.a.hold(&s.job, reader) // its id also names the phase
			alone := *r
			alone.Share = backend.Share{}
			s.a.release(false, ending(&alone, g.Token))
			s.check(s.weights(&s.job, 1).Token == g.Token, "the share has changed")
			s.a.endShare(r)
			r, g = s.a.hold(&s.job)
			share := *r
			reader(&share)
			s.a.release(false, ending(&share, g.Token))
			s.check(s.state(&s.job, backend.StateHeld).Token == g.Token, "the hold has changed")
			s.a.end(r, g.Token)
		}),
	}
}
