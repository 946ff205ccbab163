package backendtest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// triggers sends a request for the triggers of the exclusive key, changed by edit.
func (p *process) triggers(op backend.TriggerOp, entry string, edit ...func(*backend.TriggerRequest)) backend.TriggerReply {
	p.Scene.Helper()
	r := backend.TriggerRequest{Key: &p.Scene.job, Op: op, Entry: entry, Keep: day, Most: 6}
	for _, e := range edit {
		e(&r)
	}
	reply, err := p.Order(p.Scene.Context(), r)
	if err != nil {
		p.Scene.Fatalf("Order: %v", err)
	}
	return reply
}

func fresh(r *backend.TriggerRequest)     { r.Fresh = true }
func itEnds(r *backend.TriggerRequest)    { r.Ends = true }
func atMost5(r *backend.TriggerRequest)   { r.Most = 5 }
func forAWhile(r *backend.TriggerRequest) { r.Keep = 2 * time.Hour }

func numbered(n int64) func(*backend.TriggerRequest) {
	return func(r *backend.TriggerRequest) { r.Number = n }
}

// note notes a trigger and checks the outcome.
func (s *scene) note(want backend.TriggerOutcome, entry string, edit ...func(*backend.TriggerRequest)) backend.TriggerReply {
	s.Helper()
	reply := s.a.triggers(backend.TriggerNote, entry, edit...)
	if reply.Outcome != want {
		s.Fatalf("the note of %s returns %+v, want outcome %d", entry, reply, want)
	}
	return reply
}

// newest notes triggers, and returns the number of the last one.
func (s *scene) newest(entries ...string) (number int64) {
	s.Helper()
	for _, entry := range entries {
		number = s.note(backend.TriggerNewest, entry, fresh).Number
	}
	return number
}

func (s *scene) done(entry string, number int64, edit ...func(*backend.TriggerRequest)) {
	s.Helper()
	s.b.triggers(backend.TriggerDone, entry, append(edit, numbered(number))...)
}

func triggers() []rule {
	return []rule{
		fast("a trigger keeps its number, and a newer one makes it old", func(s *scene) {
			first := s.note(backend.TriggerNewest, "/1", fresh)
			s.check(first.Number > 0 && first.First == first.Number && first.Now > 0 && first.Older == 0, "the reply is %+v", first)
			again := s.note(backend.TriggerNewest, "/1")
			s.check(again.Number == first.Number, "the number is %d, then %d", first.Number, again.Number)
			second := s.note(backend.TriggerNewest, "/2", fresh)
			s.check(second.Number > first.Number && second.First == first.Number && second.Older == 1, "the reply is %+v after %+v", second, first)
			old := s.note(backend.TriggerOld, "/1")
			s.check(old.Number == first.Number, "the number is %d, want %d", old.Number, first.Number)
			s.check(s.note(backend.TriggerNewest, "/2").Older == 0, "a later note reports older triggers")
		}),
		fast("numbers grow within a microsecond", func(s *scene) {
			last := int64(0)
			for i := range 5 {
				n := s.newest(fmt.Sprint("/", i))
				s.check(n > last, "number %d after %d", n, last)
				last = n
			}
		}),
		fast("an older trigger is old after the success of a newer one", func(s *scene) {
			s.newest("/1")
			s.done("/2", s.newest("/2"), itEnds)
			s.note(backend.TriggerOld, "/1")
			s.done("/1", 1, itEnds) // a late duplicate of another trigger
			s.note(backend.TriggerOld, "/1")
			s.newest("/3")
		}),
		fast("a trigger whose task is delivered again after its success is old", func(s *scene) {
			s.done("/1", s.newest("/1")) // it has not ended
			s.note(backend.TriggerOld, "/1", fresh)
			s.note(backend.TriggerOld, "/1")
		}),
		fast("Inspect returns the newest trigger until a success covers it", func(s *scene) {
			is := func(entry string) {
				s.Helper()
				st := s.state(&s.job, backend.StateFree)
				s.check(st.Trigger == entry && st.TriggerAge > 0, "the newest trigger is %q for %v, want %q", st.Trigger, st.TriggerAge, entry)
			}
			st := s.inspect(&s.job)
			s.check(st.Trigger == "" && st.TriggerAge == 0, "without triggers: %+v", st)
			first := s.newest("/1")
			is("/1")
			s.newest("z/2") // sorted after the other members
			is("z/2")
			s.done("/1", first, itEnds) // an older one
			is("z/2")
			last := s.newest("/3")
			is("/3")
			s.b.triggers(backend.TriggerDrop, "z/2", numbered(last-1), itEnds)
			is("/3")
			s.done("/3", last) // without an end
			is("")
			s.done("z/4", s.newest("z/4")) // whose number is that of the success
			is("")
			s.done("", 1<<52) // of a function
			is("")
			s.newest("/5")
			is("/5")
		}),
		fast("a trigger that has ended stays ended if its task is retried", func(s *scene) {
			n := s.newest("/1")
			s.done("/1", n, itEnds)
			s.note(backend.TriggerOld, "/1")
			n = s.newest("/2")
			s.b.triggers(backend.TriggerDrop, "/2", numbered(n), itEnds)
			s.note(backend.TriggerOld, "/2")
			s.b.triggers(backend.TriggerDrop, "/3", numbered(s.newest("/3")-1), itEnds) // of another trigger
			s.note(backend.TriggerNewest, "/3")
		}),
		slow("an ended entry is a new trigger after a minute", func(s *scene) {
			n := s.newest("/1")
			s.done("/1", n, itEnds)
			time.Sleep(20 * time.Second)
			left := s.note(backend.TriggerAgain, "/1", fresh).Wait
			s.check(left > 39*time.Second && left <= 40*time.Second, "to be asked again after %v", left)
			time.Sleep(left)
			s.check(s.newest("/1") > n, "the number is the old one")
		}),
		slow("an ended trigger is remembered for an hour", func(s *scene) {
			s.done("/1", s.newest("/1"), itEnds)
			time.Sleep(backend.TriggerTTL - time.Second)
			s.note(backend.TriggerOld, "/1")
			s.newest("/2") // it keeps the others
			time.Sleep(2 * time.Second)
			s.newest("/3") // it forgets the first one
			s.note(backend.TriggerNewest, "/1")
		}),
		slow("a trigger that has not ended is kept, and with it the last success", func(s *scene) {
			s.newest("/1")
			n := s.note(backend.TriggerNewest, "/2", fresh, forAWhile).Number
			s.done("/2", n, itEnds, forAWhile)
			time.Sleep(2*time.Hour - time.Second)
			s.note(backend.TriggerOld, "/1", forAWhile)
			time.Sleep(2*time.Hour - time.Second)
			s.b.triggers(backend.TriggerDrop, "/1", numbered(1), forAWhile)
			s.note(backend.TriggerOld, "/1", forAWhile)
			time.Sleep(2*time.Hour + time.Second)
			s.note(backend.TriggerNewest, "/1")
		}),
		fast("the first trigger that no success covers", func(s *scene) {
			one, two, three := s.newest("/1"), s.newest("/2"), s.note(backend.TriggerNewest, "/3", fresh)
			s.check(three.First == one, "the first one is %d, want %d", three.First, one)
			s.done("/1", one, itEnds)
			r := s.note(backend.TriggerNewest, "/3")
			s.check(r.First == two, "after a success it is %d, want %d", r.First, two)
			s.done("/3", r.Number, itEnds)
			four := s.note(backend.TriggerNewest, "/4", fresh)
			s.check(four.First == four.Number, "the reply is %+v", four)
		}),
		fast("of too many triggers the oldest is forgotten, at first one that has ended", func(s *scene) {
			s.newest("/1", "/2")
			s.done("/3", s.newest("/3"), itEnds) // with = and without < that makes 4
			s.note(backend.TriggerNewest, "/4", fresh, atMost5)
			s.note(backend.TriggerNewest, "/5", fresh, atMost5) // in place of /3
			s.note(backend.TriggerNewest, "/3", atMost5)        // in place of /1
			s.note(backend.TriggerOld, "/2", atMost5)
			s.note(backend.TriggerNewest, "/1", atMost5)
		}),
		fast("a success of a function makes older triggers old", func(s *scene) {
			before := s.c.triggers(backend.TriggerRead, "")
			s.check(before.Outcome == backend.TriggerNewest && before.Succeeded == 0 && before.Now > 0, "the reply is %+v", before)
			n := s.newest("/1")
			s.done("", n+1)
			s.done("", n-1)
			after := s.c.triggers(backend.TriggerRead, "")
			s.check(after.Succeeded == n+1 && after.Now >= before.Now, "the reply is %+v", after)
			s.note(backend.TriggerOld, "/1")
		}),
		fast("triggers are apart from the data of the key", func(s *scene) {
			r, g := s.a.hold(&s.job)
			s.newest("/1")
			s.a.end(r, g.Token)
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.state(&s.job, backend.StateFree)
			s.newest("/2")
			s.note(backend.TriggerOld, "/1")
			s.lists(backend.ListRequest{Match: s.job.Name + "*", Free: true})
		}),
		fast("a revocation for a newer hold ends only an older one", func(s *scene) {
			s.a.listen()
			revoke := func(before int64) {
				_, err := s.b.Revoke(s.Context(), backend.RevokeRequest{Key: &s.job, Before: before})
				s.check(err == nil, "Revoke failed")
			}
			revoke(1) // of a free key
			r, g := s.a.hold(&s.job)
			revoke(g.Token)
			s.a.getsNothing()
			s.a.renew(backend.VerdictKept, renewal(r, long))
			revoke(g.Token + 1)
			s.a.gets(backend.Notification{Event: backend.EventRevoked, Request: r.ID})
			s.check(s.state(&s.job, backend.StateHeld).Revoked, "Revoked is false")
			s.a.renew(backend.VerdictReplaced, renewal(r, long))
			r.First = false
			s.a.acquire(backend.OutcomeEnded, r)
			s.a.end(r, g.Token)
			next, g := s.a.hold(&s.job)
			s.a.renew(backend.VerdictKept, renewal(next, long))
			s.b.revoke(&s.job)
			s.a.renew(backend.VerdictRevoked, renewal(next, long))
			s.a.end(next, g.Token)
			share, _ := s.a.hold(&s.job, reader)
			revoke(1 << 52)
			s.a.renew(backend.VerdictKept, renewal(share, long))
		}),
	}
}
