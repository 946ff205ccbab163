package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// force sends a request to end the hold of key that Inspect names, and checks the reply.
func (s *scene) force(want backend.ClearReply, key *backend.Key, edit ...func(*backend.ForceClearRequest)) backend.ForceClearReply {
	s.Helper()
	st := s.inspect(key)
	r := backend.ForceClearRequest{Key: key, Token: st.Token, Locker: st.Locker}
	for _, e := range edit {
		e(&r)
	}
	reply, err := s.c.ForceClear(s.Context(), r)
	if err != nil || reply.Outcome != want {
		s.Fatalf("ForceClear returns %+v and error %v, want outcome %d", reply, err, want)
	}
	return reply
}

func silentFor(d time.Duration) func(*backend.ForceClearRequest) {
	return func(r *backend.ForceClearRequest) { r.Silent = d }
}

func forces() []rule {
	return []rule{
		fast("Inspect returns the length of a lease, and when it was renewed", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			st := s.state(&s.job, backend.StateHeld)
			s.check(st.Lease == long && st.Remaining > long-short, "the status is %+v", st)
			s.a.renew(backend.VerdictKept, renewal(r, time.Hour))
			s.a.renew(backend.VerdictKept, renewal(r, long)) // does not make the lease shorter
			st = s.state(&s.job, backend.StateHeld)
			s.check(st.Lease <= time.Hour && st.Lease > time.Hour-short && st.Lease-st.Remaining < short, "after a renewal with a shorter lease: %+v", st)
		}),
		fast("ForceClear ends a lease like its expiry, and the next token is greater", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.force(backend.Cleared, &s.job)
			st := s.state(&s.job, backend.StateFree)
			s.check(st.Died && st.Holder == "holder", "the status is %+v", st)
			s.a.renew(backend.VerdictLost, renewal(r, long))
			s.a.acquire(backend.OutcomeEnded, r) // a late duplicate
			_, next := s.b.hold(&s.job)
			s.check(next.Abandoned && next.Token >= g.Token+backend.TokensPerGrant, "%+v after %+v", next, g)
			s.a.release(false, ending(r, g.Token))
			s.a.renew(backend.VerdictLost, renewal(r, long))
			s.a.acquire(backend.OutcomeEnded, r)
			s.state(&s.job, backend.StateHeld)
		}),
		fast("ForceClear changes nothing if another hold has the key", func(s *scene) {
			s.a.hold(&s.job)
			seen := s.state(&s.job, backend.StateHeld)
			for name, edit := range map[string]func(*backend.ForceClearRequest){
				"token":  func(r *backend.ForceClearRequest) { r.Token++ },
				"locker": func(r *backend.ForceClearRequest) { r.Locker = s.b.id },
			} {
				s.force(backend.ClearChanged, &s.job, edit)
				st := s.state(&s.job, backend.StateHeld)
				s.check(st.Token == seen.Token, "after another %s: %+v", name, st)
			}
			s.force(backend.ClearChanged, &s.claim) // was never used
		}),
		fast("ForceClear refuses a lease that was renewed too recently, and tells when to look again", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			reply := s.force(backend.ClearHeld, &s.job, silentFor(time.Hour))
			s.check(reply.Wait <= time.Hour && reply.Wait > time.Hour-short, "Wait is %v", reply.Wait)
			s.a.renew(backend.VerdictKept, renewal(r, long))
		}),
		slow("ForceClear ends a lease that was not renewed for long enough", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			wait := s.force(backend.ClearHeld, &s.job, silentFor(3*time.Second)).Wait
			time.Sleep(wait / 2)
			s.a.renew(backend.VerdictKept, renewal(r, long))
			time.Sleep(wait / 2)
			wait = s.force(backend.ClearHeld, &s.job, silentFor(3*time.Second)).Wait
			time.Sleep(wait)
			s.force(backend.Cleared, &s.job, silentFor(3*time.Second))
		}),
		fast("ForceClear notifies the holder, and the first process of the queue", func(s *scene) {
			s.a.listen()
			s.b.listen()
			r, _ := s.a.hold(&s.job)
			waiter := s.b.wait(&s.job)
			s.force(backend.Cleared, &s.job)
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: r.ID})
			s.b.gets(backend.Notification{Event: backend.EventCooling, Request: waiter.ID})
			s.check(s.b.acquire(backend.OutcomeGranted, waiter).Abandoned, "the takeover is not reported")
		}),
		fast("ForceClear notifies the parking Locker if no request waits", func(s *scene) {
			s.b.listen()
			s.a.hold(&s.job)
			s.b.park(backend.Parked, &s.job, "entry")
			s.force(backend.Cleared, &s.job)
			s.b.gets(backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name})
		}),
		fast("ForceClear leaves a once key abandoned", func(s *scene) {
			_, g := s.a.hold(&s.claim, digest("1"))
			s.force(backend.Cleared, &s.claim)
			s.state(&s.claim, backend.StateAbandoned)
			s.b.acquire(backend.OutcomeAbandoned, request(&s.claim, atMostOnce))
			_, next := s.b.hold(&s.claim, digest("1"))
			s.check(next.Abandoned && next.Attempt == 2 && next.Token >= g.Token+backend.TokensPerGrant, "%+v after %+v", next, g)
		}),
		fast("after ForceClear the late run can be recorded until another one begins", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.force(backend.Cleared, &s.claim)
			s.a.complete(true, completion(r, g.Token))
			s.state(&s.claim, backend.StateDone)
		}),
		fast("ForceClear ends a hold that was transferred", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.a.renew(backend.VerdictKept, renewal(r, day))
			s.force(backend.Cleared, &s.job)
			s.b.adopt(backend.VerdictLost, adoption(r))
		}),
		fast("ForceClear changes no share", func(s *scene) {
			r := request(&s.job, func(r *backend.AcquireRequest) { r.Share = backend.Share{Limit: 2, Weight: 1} })
			s.a.acquire(backend.OutcomeGranted, r)
			s.force(backend.ClearChanged, &s.job)
			s.a.renew(backend.VerdictKept, renewal(r, long))
		}),
		fast("shares follow a hold that ForceClear has ended", func(s *scene) {
			s.b.listen()
			s.a.hold(&s.job)
			share := func(r *backend.AcquireRequest) { r.Share = backend.Share{Limit: 2, Weight: 1} }
			waiter := s.b.wait(&s.job, share)
			s.force(backend.Cleared, &s.job)
			s.b.gets(backend.Notification{Event: backend.EventCooling, Request: waiter.ID})
			s.check(s.b.acquire(backend.OutcomeGranted, waiter).Abandoned, "the takeover is not reported")
		}),
	}
}
