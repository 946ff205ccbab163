package backendtest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// perMinute is a rate whose next call does not become due during a test in real time.
var perMinute = backend.Rate{N: 1, Per: time.Minute, Burst: 1, Cost: 1}

// throttled changes a request into one that is only admitted.
func throttled(rate backend.Rate) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Share, r.Calls = backend.Share{Rate: rate}, 1 }
}

// rated changes a request into one for a permit with a rate.
func rated(limit int, rate backend.Rate) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Share = backend.Share{Limit: limit, Weight: 1, Rate: rate} }
}

func calls(n int) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Calls = n }
}

// due checks the time until the turn of a request, which is measured soon after its rate was used.
func (s *scene) due(reply backend.AcquireReply, want time.Duration) {
	s.Helper()
	s.check(reply.Exact && reply.Remaining <= want && reply.Remaining > want-10*time.Second, "the reply is %+v, want a turn in %v", reply, want)
}

func rates() []rule {
	return append(rateQueues(),
		fast("a rate admits one call, and holds nothing", func(s *scene) {
			g := s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			s.check(g.Calls == 1 && g.Rest == 0 && g.Reset > 50*time.Second && g.Reset <= time.Minute, "the reply is %+v", g)
			s.state(&s.job, backend.StateFree)
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute))), time.Minute)
			s.b.hold(&s.job)
		}),
		fast("a burst admits several calls", func(s *scene) {
			five := backend.Rate{N: 2, Per: time.Minute, Burst: 5, Cost: 2}
			g := s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(five)))
			s.check(g.Rest == 3 && g.Reset > 20*time.Second && g.Reset <= 30*time.Second, "the reply is %+v", g)
			s.b.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(five)))
			s.due(s.c.acquire(backend.OutcomeBusy, request(&s.job, throttled(five))), 30*time.Second)
		}),
		fast("several calls of one process are admitted as far as the rate allows", func(s *scene) {
			three := backend.Rate{N: 1, Per: time.Minute, Burst: 3, Cost: 1}
			g := s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(three), calls(10)))
			s.check(g.Calls == 3 && g.Rest == 0, "the reply is %+v", g)
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(three))), time.Minute)
		}),
		fast("a cost above the burst waits for a full bucket", func(s *scene) {
			heavy := backend.Rate{N: 1, Per: time.Minute, Burst: 2, Cost: 5}
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(heavy)))
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(heavy))), 5*time.Minute)
		}),
		fast("Spend takes a cost without waiting", func(s *scene) {
			for range 2 {
				if err := s.a.Spend(s.Context(), &s.job, perMinute); err != nil {
					s.Fatal(err)
				}
			}
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute))), 2*time.Minute)
		}),
		fast("a call waits while the key is held alone, and not beside permits", func(s *scene) {
			r, g := s.a.hold(&s.job, named("me"))
			busy := s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute)))
			s.check(busy.Holder == "me" && !busy.Exact && busy.Remaining > 0, "the reply is %+v", busy)
			s.a.end(r, g.Token)
			s.a.hold(&s.job, limited(1, 1))
			s.b.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
		}),
		fast("a permit needs a place and the rate", func(s *scene) {
			slow := rated(2, backend.Rate{N: 1, Per: time.Minute, Burst: 2, Cost: 1})
			r, g := s.a.hold(&s.job, slow)
			s.check(g.Rest == 1, "the reply is %+v", g)
			s.b.hold(&s.job, slow)
			full := s.c.acquire(backend.OutcomeBusy, request(&s.job, slow))
			s.check(!full.Exact && full.Shares == 2, "the reply is %+v", full)
			s.a.endShare(r)
			s.due(s.c.acquire(backend.OutcomeBusy, request(&s.job, slow)), time.Minute)
			s.weights(&s.job, 1)
		}),
		fast("a repeated request for a permit takes its cost once", func(s *scene) {
			two := rated(5, backend.Rate{N: 1, Per: time.Minute, Burst: 2, Cost: 1})
			r, _ := s.a.hold(&s.job, two)
			s.a.acquire(backend.OutcomeGranted, r)
			s.b.hold(&s.job, two)
			s.c.acquire(backend.OutcomeBusy, request(&s.job, two))
		}),
		fast("a late duplicate of a call that gave up is not admitted", func(s *scene) {
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			r := request(&s.job, throttled(perMinute), queued)
			s.b.acquire(backend.OutcomeBusy, r)
			s.b.withdraw(r, true, func(st backend.Status) bool { return st.Queue == 0 })
			s.b.acquire(backend.OutcomeEnded, r)
		}),
		fast("Clear leaves the rate as it is", func(s *scene) {
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute))), time.Minute)
		}),
		slow("a rate admits again when the bucket has the cost", func(s *scene) {
			rate := backend.Rate{N: 1, Per: time.Second, Burst: 1, Cost: 1}
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(rate)))
			busy := s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(rate)))
			time.Sleep(busy.Remaining)
			s.b.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(rate)))
			s.a.acquire(backend.OutcomeBusy, request(&s.job, throttled(rate)))
		}),
	)
}

// rateQueues has the cases of waiting requests.
func rateQueues() []rule {
	return []rule{
		fast("waiting calls are admitted in turn", func(s *scene) {
			s.b.listen()
			s.c.listen()
			rate := backend.Rate{N: 20, Per: time.Second, Burst: 1, Cost: 1}
			hold, g := s.a.hold(&s.job)
			first, second := request(&s.job, throttled(rate), queued), request(&s.job, throttled(rate), queued)
			s.b.acquire(backend.OutcomeBusy, first)
			time.Sleep(time.Millisecond)
			s.c.acquire(backend.OutcomeBusy, second)
			s.a.end(hold, g.Token)
			s.b.getsTurn(first)
			behind := s.c.acquire(backend.OutcomeBusy, second)
			s.check(behind.Exact && behind.Place == 2 && behind.Queue == 2, "the reply is %+v", behind)
			s.a.acquire(backend.OutcomeBusy, request(&s.job, throttled(rate)))
			s.b.acquire(backend.OutcomeAdmitted, first)
			s.c.getsCooling(second, 50*time.Millisecond)
			time.Sleep(50 * time.Millisecond)
			s.c.acquire(backend.OutcomeAdmitted, second)
		}),
		fast("the turn of a call counts the costs before it", func(s *scene) {
			s.b.listen()
			two := backend.Rate{N: 1, Per: time.Minute, Burst: 1, Cost: 2}
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(two), queued)), time.Minute)
			time.Sleep(time.Millisecond) // the queue is in the order of arrival
			s.due(s.c.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute), queued)), 3*time.Minute)
		}),
		fast("a dead process that waits for the rate takes nothing", func(s *scene) {
			s.c.listen()
			rate := backend.Rate{N: 3, Per: time.Second, Burst: 1, Cost: 1}
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(rate)))
			s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(rate), queued)) // it does not listen
			time.Sleep(400 * time.Millisecond)
			s.c.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(rate), queued))
		}),
		slow("behind an expired hold dead processes delay no call", func(s *scene) {
			s.c.listen()
			for i, edit := range []func(*backend.AcquireRequest){throttled(perMinute), rated(1, perMinute), named("alone")} {
				key := s.a.Key(backend.KindExclusive, fmt.Sprint(s.job.Name, i))
				s.a.hold(&key, expiring)
				s.b.wait(&key, edit) // it does not listen
				time.Sleep(short + 20*time.Millisecond)
				s.c.acquire(backend.OutcomeAdmitted, request(&key, throttled(perMinute), queued))
				_, g := s.c.hold(&key)
				s.check(g.Abandoned, "the next holder does not see that the last one has died")
			}
		}),
		slow("a call keeps its place while another one has the key", func(s *scene) {
			s.b.listen()
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(backend.Rate{N: 10, Per: time.Second, Burst: 1, Cost: 1})))
			first := s.b.wait(&s.job, throttled(perMinute))
			hold, g := s.c.hold(&s.job)
			for range 3 {
				time.Sleep(2 * time.Second)
				s.b.acquire(backend.OutcomeBusy, first)
			}
			s.c.end(hold, g.Token)
			s.a.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute)))
			s.b.acquire(backend.OutcomeAdmitted, first)
		}),
		fast("a call that leaves tells the next one", func(s *scene) {
			s.b.listen()
			s.c.listen()
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			first, second := request(&s.job, throttled(perMinute), queued), request(&s.job, throttled(perMinute), queued)
			s.b.acquire(backend.OutcomeBusy, first)
			time.Sleep(time.Millisecond)
			s.c.acquire(backend.OutcomeBusy, second)
			s.b.Withdraw(backend.WithdrawRequest{Key: first.Key, ID: first.ID, Retention: time.Minute, Share: first.Share})
			s.c.getsCooling(second, time.Minute)
		}),
		fast("a permit that ends tells the next one, which the rate lets begin", func(s *scene) {
			s.b.listen()
			often := rated(1, backend.Rate{N: 1000, Per: time.Second, Burst: 1, Cost: 1})
			r, _ := s.a.hold(&s.job, often)
			w := request(&s.job, often, queued)
			s.b.acquire(backend.OutcomeBusy, w)
			time.Sleep(2 * time.Millisecond)
			s.a.endShare(r)
			s.b.getsTurn(w)
			s.b.acquire(backend.OutcomeGranted, w)
		}),
	}
}
