package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

func (p *process) restrict(k *backend.Key, r backend.Restriction) {
	p.Scene.Helper()
	r.Reason = "night"
	if err := p.Restrict(p.Scene.Context(), k, r); err != nil {
		p.Scene.Fatalf("Restrict: %v", err)
	}
}

// oneAMinute is a restriction to perMinute.
var oneAMinute = backend.Restriction{Rate: backend.Rate{N: 1, Per: time.Minute, Burst: 1}, For: time.Hour}

func restrictions() []rule {
	return []rule{
		fast("a restriction lowers the limit of shares, and leaves those that are held", func(s *scene) {
			s.a.hold(&s.job, limited(3, 1))
			r, _ := s.a.hold(&s.job, limited(3, 1))
			s.b.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Hour})
			s.a.renew(backend.VerdictKept, renewal(r, long))
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			s.a.endShare(r)
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			st := s.state(&s.job, backend.StateShared).Restriction
			s.check(st.Limit == 1 && st.Rate == (backend.Rate{}) && st.Reason == "night" && st.For > 50*time.Minute && st.For <= time.Hour, "the status is %+v", st)
		}),
		fast("a restriction raises no limit", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Limit: 5, For: time.Hour})
			s.a.hold(&s.job, limited(1, 1))
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(1, 1)))
		}),
		fast("a share that is heavier than a restriction is held beside no other one", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Limit: 2, For: time.Hour})
			r, _ := s.a.hold(&s.job, limited(5, 1))
			heavy := request(&s.job, limited(5, 3))
			s.b.acquire(backend.OutcomeBusy, heavy)
			s.a.endShare(r)
			s.b.acquire(backend.OutcomeGranted, heavy)
			s.a.acquire(backend.OutcomeBusy, request(&s.job, limited(5, 1)))
		}),
		fast("the end of a restriction lets waiting shares begin", func(s *scene) {
			s.b.listen()
			s.a.hold(&s.job, limited(3, 1))
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Hour})
			first, second := request(&s.job, limited(3, 1), queued), request(&s.job, limited(3, 1), queued)
			s.b.acquire(backend.OutcomeBusy, first)
			time.Sleep(time.Millisecond) // the queue is ordered by arrival
			s.b.acquire(backend.OutcomeBusy, second)
			s.a.restrict(&s.job, backend.Restriction{})
			s.b.getsTurn(first)
			s.b.getsTurn(second)
			s.weights(&s.job, 3)
			s.check(s.state(&s.job, backend.StateShared).Restriction == (backend.Restriction{}), "the status has a restriction")
		}),
		fast("a change of a restriction notifies the Locker that parked last", func(s *scene) {
			s.b.listen()
			wake := backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name}
			s.a.hold(&s.job, limited(2, 1))
			s.b.park(backend.Parked, &s.job, "1")
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Hour})
			s.b.gets(wake)
			s.a.restrict(&s.job, backend.Restriction{})
			s.b.gets(wake)
			s.a.pause(&s.job, time.Minute)
			s.a.restrict(&s.job, oneAMinute)
			s.b.getsNothing()
			s.a.pause(&s.job, 0)
			s.b.gets(wake)
		}),
		fast("a share with a rate that is heavier than a restriction gets the free key", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Limit: 2, For: time.Hour})
			heavy := request(&s.job, rated(5, backend.Rate{N: 1000, Per: time.Second, Burst: 10, Cost: 1}))
			heavy.Share.Weight = 3
			s.b.acquire(backend.OutcomeGranted, heavy)
		}),
		fast("a restriction lowers a rate", func(s *scene) {
			s.a.restrict(&s.job, oneAMinute)
			quick := request(&s.job, throttled(backend.Rate{N: 100, Per: time.Second, Burst: 10, Cost: 1}), calls(10))
			g := s.a.acquire(backend.OutcomeAdmitted, quick)
			s.check(g.Calls == 1 && g.Rest == 0 && g.Reset > 50*time.Second, "the reply is %+v", g)
			s.due(s.b.acquire(backend.OutcomeBusy, quick), time.Minute)
		}),
		fast("a restriction raises no rate", func(s *scene) {
			s.a.restrict(&s.job, oneAMinute)
			slow := throttled(backend.Rate{N: 1, Per: time.Hour, Burst: 1, Cost: 1})
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, slow))
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, slow)), time.Hour)
		}),
		fast("a restriction gives a rate to shares without one", func(s *scene) {
			s.a.restrict(&s.job, oneAMinute)
			r, g := s.a.hold(&s.job, limited(3, 1))
			s.check(g.Reset > 50*time.Second, "the reply is %+v", g)
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1))), time.Minute)
			s.a.endShare(r)
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1))), time.Minute)
			s.a.hold(&s.job)
		}),
		fast("a call takes its cost from its own rate and from that of a restriction", func(s *scene) {
			own := request(&s.job, throttled(backend.Rate{N: 1, Per: time.Minute, Burst: 3, Cost: 1}), calls(10))
			s.a.restrict(&s.job, backend.Restriction{Rate: backend.Rate{N: 10, Per: time.Second, Burst: 10}, For: time.Hour})
			g := s.a.acquire(backend.OutcomeAdmitted, own)
			s.check(g.Calls == 3 && g.Rest == 0 && g.Reset > 50*time.Second, "the reply is %+v", g)
			for _, r := range []backend.Restriction{{}, {Rate: backend.Rate{N: 10, Per: time.Second, Burst: 10}, For: time.Hour}, {}} {
				s.due(s.b.acquire(backend.OutcomeBusy, own), time.Minute)
				s.a.restrict(&s.job, r)
			}
			s.due(s.b.acquire(backend.OutcomeBusy, own), time.Minute)
		}),
		fast("a share without a rate leaves the rate of the key as it is", func(s *scene) {
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			s.a.restrict(&s.job, oneAMinute)
			s.a.hold(&s.job, limited(3, 1))
			s.a.restrict(&s.job, backend.Restriction{})
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute))), time.Minute)
		}),
		fast("the turn of a share is after those of the calls before it", func(s *scene) {
			s.b.listen()
			s.a.restrict(&s.job, backend.Restriction{Rate: backend.Rate{N: 10, Per: time.Second, Burst: 10}, For: time.Hour})
			s.a.acquire(backend.OutcomeAdmitted, request(&s.job, throttled(perMinute)))
			s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute), queued)), time.Minute)
			s.due(s.c.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1))), time.Minute)
		}),
		fast("a share waits for a restricted rate after a hold of the key alone", func(s *scene) {
			s.b.listen()
			s.a.restrict(&s.job, backend.Restriction{Rate: backend.Rate{N: 1, Per: time.Second, Burst: 1}, For: time.Hour})
			r, _ := s.a.hold(&s.job, limited(3, 1))
			s.a.endShare(r)
			alone, g := s.a.hold(&s.job)
			w := request(&s.job, limited(3, 1), queued)
			s.b.acquire(backend.OutcomeBusy, w)
			s.a.end(alone, g.Token)
			s.b.getsTurn(w)
			s.due(s.b.acquire(backend.OutcomeBusy, w), time.Second)
			time.Sleep(time.Second)
			s.b.acquire(backend.OutcomeGranted, w)
		}),
		fast("a second restriction replaces the first one", func(s *scene) {
			s.a.restrict(&s.job, oneAMinute)
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Minute})
			s.a.hold(&s.job, limited(3, 1))
			busy := s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			s.check(!busy.Exact, "the reply is %+v", busy)
		}),
		fast("a second restriction begins with a full bucket", func(s *scene) {
			quick := throttled(backend.Rate{N: 100, Per: time.Second, Burst: 10, Cost: 1})
			for range 2 {
				s.a.restrict(&s.job, oneAMinute)
				s.a.acquire(backend.OutcomeAdmitted, request(&s.job, quick))
				s.due(s.b.acquire(backend.OutcomeBusy, request(&s.job, quick)), time.Minute)
			}
		}),
		fast("Clear leaves a restriction", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Hour})
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.a.hold(&s.job, limited(3, 1))
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
		}),
		slow("an entry that waits for a restricted rate is remembered as long as it is kept", func(s *scene) {
			s.b.listen()
			s.a.restrict(&s.job, oneAMinute)
			s.b.parkIn(backend.Parked, backend.ParkRequest{Key: &s.job, Entry: "1", Most: 3, Keep: anHour, Free: true})
			time.Sleep(2 * backend.ParkedTTL)
			s.a.restrict(&s.job, backend.Restriction{})
			s.b.gets(backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name})
		}),
		slow("a restriction ends", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Limit: 1, For: time.Second})
			s.a.hold(&s.job, limited(3, 1))
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1)))
			time.Sleep(time.Second)
			s.b.hold(&s.job, limited(3, 1))
		}),
		slow("after the end of a restriction the own rate allows calls at once", func(s *scene) {
			s.a.restrict(&s.job, backend.Restriction{Rate: backend.Rate{N: 1, Per: time.Hour, Burst: 1}, For: time.Second})
			quick := request(&s.job, throttled(backend.Rate{N: 100, Per: time.Second, Burst: 10, Cost: 1}))
			s.a.acquire(backend.OutcomeAdmitted, quick)
			s.due(s.b.acquire(backend.OutcomeBusy, quick), time.Hour)
			time.Sleep(time.Second)
			s.b.acquire(backend.OutcomeAdmitted, quick)
		}),
	}
}
