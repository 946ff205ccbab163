package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

func queues() []rule {
	return []rule{
		fast("a request waits in the queue once", func(s *scene) {
			s.a.hold(&s.job)
			r := s.b.wait(&s.job)
			s.check(s.b.acquire(backend.OutcomeBusy, r).Queue == 1, "a repeat is queued again")
			s.c.wait(&s.job)
			s.check(s.inspect(&s.job).Queue == 2, "the queue does not have two waiters")
		}),
		fast("a request that does not wait is not queued", func(s *scene) {
			s.a.hold(&s.job)
			s.b.acquire(backend.OutcomeBusy, request(&s.job))
			s.check(s.inspect(&s.job).Queue == 0, "the request is queued")
		}),
		fast("a withdrawn request leaves the queue", func(s *scene) {
			s.a.hold(&s.job)
			r := s.b.wait(&s.job)
			s.b.withdraw(r, false, func(st backend.Status) bool { return st.Queue == 0 })
			s.state(&s.job, backend.StateHeld)
		}),
		fast("a granted request leaves the queue", func(s *scene) {
			s.a.hold(&s.job, func(r *backend.AcquireRequest) { r.Lease = 2 * short })
			r := s.b.wait(&s.job)
			time.Sleep(2*short + 20*time.Millisecond)
			s.b.acquire(backend.OutcomeGranted, r)
			s.check(s.inspect(&s.job).Queue == 0, "the request is still in the queue")
		}),
		fast("the calls that wait are those that the processes have said", func(s *scene) {
			s.a.hold(&s.job)
			first := s.b.wait(&s.job, says(5, 4*time.Second))
			s.c.wait(&s.job)
			s.waits(&s.job, 6, 4*time.Second)
			first.Waits = backend.Waits{Calls: 2, Oldest: 2 * time.Minute}
			s.b.acquire(backend.OutcomeBusy, first)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, says(9, time.Hour))) // does not enter the queue
			s.waits(&s.job, 3, 2*time.Minute)
			s.b.withdraw(first, false, func(st backend.Status) bool { return st.Queue == 1 })
			s.waits(&s.job, 1, 0)
			s.b.wait(&s.job)
			s.waits(&s.job, 3, 2*time.Minute)
		}),
		slow("what a process has said of its calls is forgotten", func(s *scene) {
			s.a.hold(&s.job, func(r *backend.AcquireRequest) { r.Lease = time.Hour })
			s.b.wait(&s.job, says(5, 4*time.Second))
			time.Sleep(10 * time.Second)
			s.c.wait(&s.job, says(7, time.Second))
			s.waits(&s.job, 12, 14*time.Second)
			time.Sleep(backend.WaitsTTL - 9*time.Second)
			s.waits(&s.job, 8, 7*time.Second)
			time.Sleep(10 * time.Second)
			s.waits(&s.job, 2, 0)
		}),
		slow("a queue ends a minute after its last request", func(s *scene) {
			s.a.hold(&s.job, func(r *backend.AcquireRequest) { r.Lease = time.Hour })
			s.b.wait(&s.job)
			time.Sleep(40 * time.Second)
			s.c.wait(&s.job)
			time.Sleep(40 * time.Second)
			s.check(s.inspect(&s.job).Queue == 2, "the queue is shorter")
			time.Sleep(21 * time.Second)
			s.check(s.inspect(&s.job).Queue == 0, "the queue has not ended")
		}),
	}
}

// says makes a request say how many calls of its process wait.
func says(calls int, oldest time.Duration) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Waits = backend.Waits{Calls: calls, Oldest: oldest} }
}

// waits checks how many calls wait for a key, and that the oldest has waited for oldest or a little longer.
func (s *scene) waits(k *backend.Key, calls int, oldest time.Duration) {
	s.Helper()
	w := s.inspect(k).Waits
	if more := w.Oldest - oldest; w.Calls != calls || more < 0 || more > 10*time.Second || oldest == 0 && more > 0 {
		s.Errorf("%+v wait, want %d calls, the oldest for %v", w, calls, oldest)
	}
}

func turns() []rule {
	return []rule{
		fast("a released key is reserved for the first waiter", func(s *scene) {
			s.b.listen()
			s.c.listen()
			r, g := s.a.hold(&s.job)
			first, second := s.b.wait(&s.job), s.c.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(first)
			s.c.getsNothing()
			s.state(&s.job, backend.StateReserved)
			busy := s.c.acquire(backend.OutcomeBusy, second)
			s.check(busy.Holder == "" && busy.HeldFor == 0 && busy.Remaining <= backend.ReserveTime && busy.Queue == 1, "the reply is %+v", busy)
			s.b.acquire(backend.OutcomeGranted, first)
		}),
		fast("a waiter that does not listen is passed over", func(s *scene) {
			s.c.listen()
			r, g := s.a.hold(&s.job)
			s.b.wait(&s.job)
			second := s.c.wait(&s.job)
			s.a.end(r, g.Token)
			s.c.getsTurn(second)
			s.check(s.inspect(&s.job).Queue == 0, "the dead waiter is still in the queue")
		}),
		fast("a key without a live waiter is free", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.b.wait(&s.job)
			s.a.end(r, g.Token)
			s.c.hold(&s.job)
		}),
		fast("a reservation ends", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			first := s.b.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(first)
			time.Sleep(backend.ReserveTime + 20*time.Millisecond)
			s.state(&s.job, backend.StateFree)
			_, next := s.c.hold(&s.job)
			s.check(!next.Abandoned, "the grant is %+v", next)
		}),
		fast("a withdrawn reservation goes to the next waiter", func(s *scene) {
			s.b.listen()
			s.c.listen()
			r, g := s.a.hold(&s.job)
			first, second := s.b.wait(&s.job), s.c.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(first)
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: first.ID, Retention: time.Minute})
			s.c.getsTurn(second)
			s.c.acquire(backend.OutcomeGranted, second)
		}),
		fast("a waiter that gives up leaves the reservation of another one", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			first, second := s.b.wait(&s.job), s.c.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(first)
			s.c.withdraw(second, false, func(st backend.Status) bool { return st.Queue == 0 })
			s.state(&s.job, backend.StateReserved)
			s.b.acquire(backend.OutcomeGranted, first)
		}),
		fast("a withdrawn grant goes to the next waiter", func(s *scene) {
			s.b.listen()
			r, _ := s.a.hold(&s.job)
			next := s.b.wait(&s.job)
			s.a.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: r.ID, Retention: time.Minute, Granted: true})
			s.b.getsTurn(next)
		}),
		fast("an abandoned key is reserved too", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.claim)
			next := s.b.wait(&s.claim)
			s.a.abandon(r, g.Token)
			s.b.getsTurn(next)
			s.check(s.b.acquire(backend.OutcomeGranted, next).Abandoned, "the grant is not a takeover")
		}),
		fast("a cooling key is not reserved", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			w := s.b.wait(&s.job)
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(time.Minute)
			s.a.release(true, end)
			s.b.getsCooling(w, time.Minute)
			s.b.getsNothing()
			s.check(s.state(&s.job, backend.StateCooling).Queue == 1, "the waiter has left the queue")
		}),
		fast("the first waiter of a cooling key knows its place", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			first, second := s.b.wait(&s.job), s.b.wait(&s.job, limited(1, 1))
			s.check(s.b.acquire(backend.OutcomeBusy, first).Place == 0, "a held key cools")
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(time.Minute)
			s.a.release(true, end)
			s.b.getsCooling(first, time.Minute)
			s.check(s.b.acquire(backend.OutcomeBusy, first).Place == 1, "the first waiter is not the first")
			s.check(s.b.acquire(backend.OutcomeBusy, second).Place == 2, "the second waiter is not behind the first")
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: first.ID, Retention: time.Minute})
			s.b.getsCooling(second, time.Minute)
			third := s.b.wait(&s.job)
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: second.ID, Retention: time.Minute, Share: second.Share})
			s.b.getsCooling(third, time.Minute)
			s.check(s.b.acquire(backend.OutcomeBusy, third).Place == 1, "the third waiter is not the first")
		}),
		fast("a dead waiter of a cooling key leaves the queue", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			s.c.wait(&s.job)
			w := s.b.wait(&s.job)
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(time.Minute)
			s.a.release(true, end)
			s.b.getsCooling(w, time.Minute)
			s.check(s.state(&s.job, backend.StateCooling).Queue == 1, "the dead waiter is in the queue")
		}),
		slow("one release passes over a hundred dead waiters", func(s *scene) {
			s.c.listen()
			r, g := s.a.hold(&s.job)
			for range 100 {
				s.b.wait(&s.job)
			}
			s.c.wait(&s.job)
			s.a.end(r, g.Token)
			s.c.getsNothing()
			s.check(s.state(&s.job, backend.StateFree).Queue == 1, "the live waiter is not in the queue")
		}),
	}
}

func records() []rule {
	return []rule{
		fast("a record is returned to later requests", func(s *scene) {
			r, g := s.a.hold(&s.claim, digest("1"))
			s.a.complete(true, completion(r, g.Token))
			done := s.b.acquire(backend.OutcomeDone, request(&s.claim))
			s.check(string(done.Record) == "record" && done.Attempt == 1 && done.Fingerprint == "1", "the reply is %+v", done)
			st := s.state(&s.claim, backend.StateDone)
			s.check(string(st.Record) == "record" && st.KeepLeft > 0 && st.KeepLeft <= time.Hour, "the state is %+v", st)
		}),
		fast("a record may be empty", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			c := completion(r, g.Token)
			c.Record = nil
			s.a.complete(true, c)
			s.check(len(s.b.acquire(backend.OutcomeDone, request(&s.claim)).Record) == 0, "the record is not empty")
		}),
		fast("a done key with another fingerprint mismatches", func(s *scene) {
			r, g := s.a.hold(&s.claim, digest("1"))
			s.a.complete(true, completion(r, g.Token))
			s.check(s.b.acquire(backend.OutcomeMismatch, request(&s.claim, digest("2"))).IsDone, "the key is not done")
		}),
		fast("a repeated completion succeeds", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			s.a.complete(true, completion(r, g.Token))
		}),
		fast("a completion after the lease expired succeeds", func(s *scene) {
			r, g := s.a.expired(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			s.state(&s.claim, backend.StateDone)
		}),
		fast("a completion of a revoked hold succeeds", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.b.revoke(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			s.check(!s.state(&s.claim, backend.StateDone).Revoked, "the record is revoked")
		}),
		fast("a completion after a takeover fails", func(s *scene) {
			r, g := s.a.expired(&s.claim)
			s.b.hold(&s.claim)
			s.a.complete(false, completion(r, g.Token))
			s.state(&s.claim, backend.StateHeld)
		}),
		fast("a completion notifies all waiters", func(s *scene) {
			s.b.listen()
			s.c.listen()
			r, g := s.a.hold(&s.claim)
			one, two := s.b.wait(&s.claim), s.c.wait(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			s.b.getsTurn(one)
			s.c.getsTurn(two)
			s.check(s.inspect(&s.claim).Queue == 0, "the queue is not empty")
		}),
		slow("a record ends", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			time.Sleep(time.Hour + time.Second)
			s.state(&s.claim, backend.StateFree)
			_, next := s.b.hold(&s.claim)
			s.check(next.Attempt == 1 && next.Token > g.Token, "the grant is %+v", next)
		}),
		slow("a record ends before the ids that are remembered", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			c := completion(r, g.Token)
			c.Keep, c.Repeated = 10*time.Second, true
			s.a.complete(true, c)
			s.check(s.state(&s.claim, backend.StateDone).KeepLeft <= c.Keep, "the record is kept for longer")
			time.Sleep(c.Keep + time.Second)
			s.state(&s.claim, backend.StateFree)
			s.a.acquire(backend.OutcomeEnded, r)
			_, next := s.b.hold(&s.claim)
			s.check(next.Attempt == 1, "the grant is %+v", next)
		}),
		slow("a withdrawal does not extend a record", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			c := completion(r, g.Token)
			c.Keep = 10 * time.Second
			s.a.complete(true, c)
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.claim, ID: request(&s.claim).ID, Retention: time.Minute, Repeated: true})
			time.Sleep(c.Keep + time.Second)
			s.state(&s.claim, backend.StateFree)
		}),
	}
}

func rotations() []rule {
	return []rule{
		fast("release and acquire gets a key that has no waiter", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token+used)
			end.Next = request(&s.job, named("next"))
			next := s.a.release(true, end).Next
			s.check(next.Outcome == backend.OutcomeGranted && next.Token > end.Token && next.Attempt == 1 && !next.Abandoned, "the grant is %+v", next)
			s.check(!next.Sent.IsZero(), "Sent is zero")
			s.check(s.inspect(&s.job).Holder == "next", "the holder is not the next one")
		}),
		fast("release and acquire reserves the key for a waiter", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			waiter := s.b.wait(&s.job)
			end := ending(r, g.Token)
			end.Next = request(&s.job, queued)
			next := s.a.release(true, end).Next
			s.check(next.Outcome == backend.OutcomeBusy && next.Remaining == backend.ReserveTime && next.Queue == 1, "the reply is %+v", next)
			s.b.getsTurn(waiter)
			s.b.acquire(backend.OutcomeGranted, waiter)
		}),
		fast("release and acquire without the hold acquires nothing", func(s *scene) {
			r, g := s.a.expired(&s.job)
			s.b.hold(&s.job)
			end := ending(r, g.Token)
			end.Next = request(&s.job, queued)
			next := s.a.release(false, end).Next
			s.check(next.Outcome == backend.OutcomeBusy && next.Remaining == 0, "the reply is %+v", next)
			s.check(s.inspect(&s.job).Queue == 0, "the request is queued")
		}),
		fast("a repeat of release and acquire gets the same grant", func(s *scene) {
			r, g := s.a.hold(&s.job)
			end := ending(r, g.Token)
			end.Next = request(&s.job)
			next := s.a.release(true, end).Next
			end.Repeated = true
			again := s.a.release(false, end).Next
			s.check(again.Outcome == backend.OutcomeGranted && again.Token == next.Token, "%+v, then %+v", next, again)
		}),
	}
}
