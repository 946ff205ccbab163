package backendtest

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// adoption returns a request to adopt the hold of r.
func adoption(r *backend.AcquireRequest) backend.AdoptRequest {
	return backend.AdoptRequest{Key: r.Key, From: r.ID, ID: rand.Text(), Holder: "adopter", Lease: long, Retention: long + day}
}

// adopt adopts a hold and checks the verdict.
func (p *process) adopt(want backend.Verdict, r backend.AdoptRequest) backend.AdoptReply {
	p.Scene.Helper()
	reply, err := p.Adopt(p.Scene.Context(), r)
	if err != nil || reply.Verdict != want {
		p.Scene.Fatalf("Adopt returns %+v and error %v, want verdict %d", reply, err, want)
	}
	if reply.Sent.IsZero() {
		p.Scene.Error("Adopt does not return when it sent the request")
	}
	return reply
}

func (p *process) interim(want bool, r *backend.AcquireRequest, attempt int, answer string) {
	p.Scene.Helper()
	stored, err := p.Interim(p.Scene.Context(), backend.InterimRequest{Key: r.Key, ID: r.ID, Attempt: attempt, Answer: []byte(answer)})
	if err != nil || stored != want {
		p.Scene.Fatalf("Interim returns %v and error %v, want %v", stored, err, want)
	}
}

// as returns a request with the id of the new grant, for a renewal or an end.
func as(r backend.AdoptRequest) *backend.AcquireRequest {
	return &backend.AcquireRequest{Key: r.Key, ID: r.ID}
}

func adoptions() []rule {
	return slices.Concat(adopting(), notAdopting(), interims())
}

func adopting() []rule {
	return []rule{
		fast("a hold passes to another process", func(s *scene) {
			r, g := s.a.hold(&s.job)
			to := adoption(r)
			got := s.b.adopt(backend.VerdictKept, to)
			s.check(got.Token >= g.Token+backend.TokensPerGrant && got.Attempt == 1 && !got.Abandoned, "%+v after %+v", got, g)
			s.a.renew(backend.VerdictLost, renewal(r, long))
			s.a.release(false, ending(r, g.Token))
			st := s.state(&s.job, backend.StateHeld)
			s.check(st.Token == got.Token && st.Holder == "adopter" && st.Locker == s.b.id, "the status is %+v", st)
			s.b.renew(backend.VerdictKept, renewal(as(to), long))
			s.b.end(as(to), got.Token)
			_, next := s.c.hold(&s.job)
			s.check(next.Token > got.Token && !next.Abandoned, "%+v after %+v", next, got)
		}),
		fast("a run that is adopted continues", func(s *scene) {
			s.a.expired(&s.claim)
			r, _ := s.a.hold(&s.claim, digest("f"))
			to := adoption(r)
			got := s.b.adopt(backend.VerdictKept, to)
			s.check(got.Attempt == 2 && got.Abandoned && got.Fingerprint == "f", "the reply is %+v", got)
			s.c.acquire(backend.OutcomeMismatch, request(&s.claim, digest("other")))
			s.a.complete(false, completion(r, got.Token))
			s.b.complete(true, completion(as(to), got.Token))
			s.check(s.c.acquire(backend.OutcomeDone, request(&s.claim, digest("f"))).Attempt == 2, "the record has another attempt")
		}),
		fast("an adopted hold can be adopted", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			to := adoption(r)
			first := s.b.adopt(backend.VerdictKept, to)
			second := s.c.adopt(backend.VerdictKept, adoption(as(to)))
			s.check(second.Token >= first.Token+backend.TokensPerGrant, "%+v after %+v", second, first)
			s.b.adopt(backend.VerdictLost, to)
		}),
		fast("a hold can be adopted for a day", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.a.renew(backend.VerdictKept, renewal(r, day))
			s.b.hold(&s.claim)
			left := s.state(&s.job, backend.StateHeld).Remaining
			s.check(left > day-time.Minute && left <= day, "%v of the lease remain", left)
			s.b.adopt(backend.VerdictKept, adoption(r))
			left = s.state(&s.job, backend.StateHeld).Remaining
			s.check(left <= long, "%v of the adopted lease remain", left)
		}),
		fast("a repeated adoption gets the same grant", func(s *scene) {
			r, _ := s.a.hold(&s.claim)
			to := adoption(r)
			to.Lease = 2 * time.Second
			first := s.b.adopt(backend.VerdictKept, to)
			again := s.b.adopt(backend.VerdictKept, to)
			s.check(again.Token == first.Token && again.Attempt == 1, "%+v, then %+v", first, again)
			s.b.renew(backend.VerdictKept, renewal(as(to), long))
			s.b.adopt(backend.VerdictKept, to)
			s.check(s.inspect(&s.claim).Remaining > 2*time.Second, "the repeat made the lease shorter")
		}),
	}
}

func notAdopting() []rule {
	return []rule{
		fast("a hold is adopted once", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.b.adopt(backend.VerdictKept, adoption(r))
			s.c.adopt(backend.VerdictLost, adoption(r))
		}),
		fast("an expired hold is not adopted", func(s *scene) {
			r, _ := s.a.expired(&s.job)
			s.b.adopt(backend.VerdictLost, adoption(r))
			_, next := s.c.hold(&s.job)
			s.check(next.Abandoned, "the takeover is not reported")
		}),
		fast("an adoption that expires is abandoned", func(s *scene) {
			r, _ := s.a.hold(&s.claim)
			to := adoption(r)
			to.Lease = short
			s.b.adopt(backend.VerdictKept, to)
			time.Sleep(short + 20*time.Millisecond)
			s.b.adopt(backend.VerdictLost, to)
			s.c.acquire(backend.OutcomeAbandoned, request(&s.claim, atMostOnce))
		}),
		fast("a released hold is not adopted", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.a.end(r, g.Token)
			s.b.adopt(backend.VerdictLost, adoption(r))
			s.state(&s.job, backend.StateFree)
		}),
		fast("a forged id adopts nothing", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			forged := adoption(r)
			forged.From = rand.Text()
			s.b.adopt(backend.VerdictLost, forged)
			s.a.renew(backend.VerdictKept, renewal(r, long))
		}),
		fast("a reservation is not adopted", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.b.listen()
			w := s.b.wait(&s.job)
			s.a.end(r, g.Token)
			s.b.getsTurn(w)
			s.c.adopt(backend.VerdictLost, adoption(w))
		}),
		fast("a revoked hold is not adopted", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.c.revoke(&s.job)
			s.b.adopt(backend.VerdictRevoked, adoption(r))
			s.b.abandon(r, g.Token)
		}),
		fast("a late acquire of the first grant has ended", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			to := adoption(r)
			got := s.b.adopt(backend.VerdictKept, to)
			s.a.acquire(backend.OutcomeBusy, request(&s.job))
			s.a.acquire(backend.OutcomeEnded, r)
			s.b.end(as(to), got.Token)
			r.First = false
			s.a.acquire(backend.OutcomeEnded, r)
		}),
		fast("an adoption that was given up has no effect", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			to := adoption(r)
			s.b.release(false, &backend.ReleaseRequest{Key: r.Key, ID: to.ID, Retention: day, Abandon: true, Repeated: true})
			s.b.adopt(backend.VerdictLost, to)
			s.c.adopt(backend.VerdictKept, adoption(r))
		}),
	}
}

func interims() []rule {
	return []rule{
		fast("a busy reply has the interim answer", func(s *scene) {
			r, _ := s.a.hold(&s.claim)
			s.check(s.b.acquire(backend.OutcomeBusy, request(&s.claim)).Record == nil, "there is an answer already")
			s.a.interim(true, r, 1, "accepted")
			s.check(string(s.b.acquire(backend.OutcomeBusy, request(&s.claim)).Record) == "accepted", "the reply has another answer")
			to := adoption(r)
			got := s.b.adopt(backend.VerdictKept, to)
			s.check(string(s.c.acquire(backend.OutcomeBusy, request(&s.claim)).Record) == "accepted", "the adoption removes the answer")
			s.a.interim(true, r, 1, "new\x00")
			s.check(string(s.c.acquire(backend.OutcomeBusy, request(&s.claim)).Record) == "new\x00", "the adopter's hold has no new answer")
			s.b.complete(true, completion(as(to), got.Token))
			s.a.interim(false, r, 1, "late")
			s.check(string(s.c.acquire(backend.OutcomeDone, request(&s.claim)).Record) == "record", "the reply has another record")
		}),
		fast("an interim answer notifies all waiters, which stay in the queue", func(s *scene) {
			s.b.listen()
			s.c.listen()
			r, _ := s.a.hold(&s.claim)
			one, two := s.b.wait(&s.claim), s.c.wait(&s.claim)
			s.a.interim(false, r, 2, "of no run")
			s.a.interim(true, r, 1, "accepted")
			s.b.getsTurn(one)
			s.c.getsTurn(two)
			s.check(string(s.b.acquire(backend.OutcomeBusy, one).Record) == "accepted", "the reply has another answer")
			s.check(s.inspect(&s.claim).Queue == 2, "the queue has changed")
		}),
		fast("an interim answer ends with its hold", func(s *scene) {
			r, g := s.a.hold(&s.claim)
			s.a.interim(true, r, 1, "accepted")
			s.a.end(r, g.Token)
			s.a.interim(false, r, 1, "late")
			r, _ = s.a.hold(&s.claim, expiring)
			s.a.interim(true, r, 2, "accepted")
			time.Sleep(short + 20*time.Millisecond)
			s.a.interim(false, r, 2, "late")
			r, g = s.a.hold(&s.claim)
			s.check(s.b.acquire(backend.OutcomeBusy, request(&s.claim)).Record == nil, "the reply has the answer of the previous run")
			s.a.interim(true, r, 3, "accepted")
			s.a.abandon(r, g.Token)
			s.a.hold(&s.claim)
			s.check(s.b.acquire(backend.OutcomeBusy, request(&s.claim)).Record == nil, "the reply has the answer of the abandoned run")
		}),
		fast("an interim answer belongs to one run", func(s *scene) {
			r, _ := s.a.hold(&s.claim)
			to := adoption(r)
			got := s.b.adopt(backend.VerdictKept, to)
			s.b.end(as(to), got.Token)
			s.c.hold(&s.claim)
			s.a.interim(false, r, 1, "of the run before")
			s.c.interim(false, request(&s.claim), 2, "of no run")
			s.a.hold(&s.job)
			s.a.interim(false, request(&s.job), 1, "of an exclusive key")
		}),
	}
}
