package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

func (p *process) pause(k *backend.Key, d time.Duration) {
	p.Scene.Helper()
	if err := p.Pause(p.Scene.Context(), k, d, "429"); err != nil {
		p.Scene.Fatalf("Pause: %v", err)
	}
}

// paused checks that a request is refused because of a pause that ends in about d.
func (s *scene) paused(reply backend.AcquireReply, d time.Duration) {
	s.Helper()
	s.check(reply.Paused == "429" && reply.Remaining <= d && reply.Remaining > d-10*time.Second && reply.Holder == "", "the reply is %+v, want a pause of %v", reply, d)
}

func pauses() []rule {
	return append(endsOfPauses(),
		fast("a paused key is not granted", func(s *scene) {
			s.a.pause(&s.job, time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job)), time.Minute)
			st := s.state(&s.job, backend.StateCooling)
			s.check(st.Paused == "429" && st.PauseLeft > 50*time.Second, "the status is %+v", st)
		}),
		fast("a paused key grants no share and admits no call", func(s *scene) {
			s.a.pause(&s.job, time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1))), time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job, throttled(perMinute))), time.Minute)
		}),
		fast("a pause leaves a hold, and keeps its key after it", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.b.pause(&s.job, time.Minute)
			s.a.renew(backend.VerdictKept, renewal(r, long))
			s.check(s.state(&s.job, backend.StateHeld).Paused == "429", "the status has no pause")
			s.a.end(r, g.Token)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job)), time.Minute)
			s.a.pause(&s.job, 0)
			s.b.hold(&s.job)
		}),
		fast("a pause leaves shares, and no other one begins", func(s *scene) {
			r, _ := s.a.hold(&s.job, limited(3, 1))
			s.b.pause(&s.job, time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1))), time.Minute)
			s.a.endShare(r)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(3, 1))), time.Minute)
			s.a.pause(&s.job, 0)
			s.b.hold(&s.job, limited(3, 1))
		}),
		fast("the later end of two pauses counts", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.a.pause(&s.job, time.Minute)
			s.a.pause(&s.job, time.Second)
			s.a.end(r, g.Token)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job)), time.Minute)
			s.a.pause(&s.job, 2*time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job)), 2*time.Minute)
		}),
		fast("Clear leaves a pause", func(s *scene) {
			s.a.pause(&s.job, time.Minute)
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job)), time.Minute)
		}),
		fast("a release that acquires again is refused during a pause", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.b.pause(&s.job, time.Minute)
			end := ending(r, g.Token)
			end.Next = request(&s.job)
			reply := s.a.release(true, end)
			s.check(reply.Next.Outcome == backend.OutcomeBusy, "the reply is %+v", reply)
			s.paused(s.a.acquire(backend.OutcomeBusy, end.Next), time.Minute)
		}),
		slow("a dead holder's key stays paused", func(s *scene) {
			s.a.expired(&s.job)
			s.b.pause(&s.job, time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, request(&s.job)), time.Minute)
		}),
	)
}

func endsOfPauses() []rule {
	return []rule{
		fast("a release during a pause tells the first waiter when it ends", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			w := request(&s.job, queued)
			s.b.acquire(backend.OutcomeBusy, w)
			s.a.pause(&s.job, time.Minute)
			s.a.end(r, g.Token)
			s.b.getsCooling(w, time.Minute)
			s.state(&s.job, backend.StateCooling)
		}),
		fast("the end of a share grants no other one during a pause", func(s *scene) {
			s.b.listen()
			r, _ := s.a.hold(&s.job, limited(2, 1))
			s.a.hold(&s.job, limited(2, 1))
			s.b.acquire(backend.OutcomeBusy, request(&s.job, limited(2, 1), queued))
			s.a.pause(&s.job, time.Minute)
			s.a.endShare(r)
			s.b.getsNothing()
			s.weights(&s.job, 1)
		}),
		fast("the end of a pause gives the key to the first waiter", func(s *scene) {
			s.b.listen()
			s.a.pause(&s.job, time.Minute)
			w := request(&s.job, queued)
			s.b.acquire(backend.OutcomeBusy, w)
			s.a.pause(&s.job, 0)
			s.b.getsTurn(w)
			s.c.acquire(backend.OutcomeBusy, request(&s.job))
			s.b.acquire(backend.OutcomeGranted, w)
		}),
		fast("the end of a pause lets waiting shares begin", func(s *scene) {
			s.b.listen()
			s.a.hold(&s.job, limited(3, 1))
			s.a.pause(&s.job, time.Minute)
			w := request(&s.job, limited(3, 1), queued)
			s.b.acquire(backend.OutcomeBusy, w)
			s.a.pause(&s.job, 0)
			s.b.getsTurn(w)
			s.b.acquire(backend.OutcomeGranted, w)
		}),
		fast("the end of a pause notifies the Locker that parked last", func(s *scene) {
			s.b.listen()
			wake := backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name}
			s.a.pause(&s.job, time.Minute)
			s.b.park(backend.Parked, &s.job, "1")
			s.a.pause(&s.job, time.Hour)
			s.b.getsNothing()
			s.a.pause(&s.job, 0)
			s.b.gets(wake)
			s.a.pause(&s.job, 0) // it is not paused
			s.b.getsNothing()
			s.a.pause(&s.job, time.Minute)
			w := request(&s.job, queued)
			s.b.acquire(backend.OutcomeBusy, w)
			s.a.pause(&s.job, 0)
			s.b.getsTurn(w) // a call waits, and wakes the entry at its end
			s.b.getsNothing()
		}),
		fast("the end of a pause during a hold notifies no Locker, and during a share it does", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			s.b.park(backend.Parked, &s.job, "1")
			s.a.pause(&s.job, time.Minute)
			s.a.pause(&s.job, 0)
			s.b.getsNothing()
			s.a.end(r, g.Token)
			s.a.hold(&s.job, limited(2, 1))
			s.a.pause(&s.job, time.Minute)
			s.a.pause(&s.job, 0)
			s.b.gets(backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name})
		}),
		fast("a pause during a reservation sends its request back", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			w := request(&s.job, queued)
			s.b.acquire(backend.OutcomeBusy, w)
			s.a.end(r, g.Token)
			s.b.getsTurn(w)
			s.a.pause(&s.job, time.Minute)
			s.paused(s.b.acquire(backend.OutcomeBusy, w), time.Minute)
		}),
		slow("a pause ends by itself", func(s *scene) {
			s.a.pause(&s.job, short)
			busy := s.b.acquire(backend.OutcomeBusy, request(&s.job))
			time.Sleep(busy.Remaining + time.Millisecond)
			s.b.hold(&s.job)
		}),
	}
}
