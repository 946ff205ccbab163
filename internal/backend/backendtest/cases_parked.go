package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const anHour = time.Hour // how long the tests keep entries

// park parks an entry and checks the outcome.
func (p *process) park(want backend.ParkOutcome, k *backend.Key, entry string) backend.ParkReply {
	p.Scene.Helper()
	return p.parkIn(want, backend.ParkRequest{Key: k, Entry: entry, Most: 3, Keep: anHour})
}

func (p *process) parkIn(want backend.ParkOutcome, r backend.ParkRequest) backend.ParkReply {
	p.Scene.Helper()
	reply, err := p.Park(p.Scene.Context(), r)
	time.Sleep(time.Millisecond) // entries that are parked in the same microsecond have no defined order
	if err != nil || reply.Outcome != want {
		p.Scene.Fatalf("Park of %q returns %+v and error %v, want outcome %d", r.Entry, reply, err, want)
	}
	return reply
}

// wake removes no entry, and checks which entries are newly woken.
func (p *process) wake(k *backend.Key, woken int, prefix string, want ...string) backend.UnparkReply {
	p.Scene.Helper()
	return p.unpark(backend.UnparkRequest{Key: k, Woken: woken, Prefix: prefix}, want...)
}

func (p *process) unpark(r backend.UnparkRequest, want ...string) backend.UnparkReply {
	p.Scene.Helper()
	reply, err := p.Unpark(p.Scene.Context(), r)
	if err != nil {
		p.Scene.Fatalf("Unpark: %v", err)
	}
	p.Scene.check(slices.Equal(reply.Wake, want), "Unpark wakes %q, want %q", reply.Wake, want)
	return reply
}

// parked holds a key and parks entries.
func (s *scene) parked(k *backend.Key, entries ...string) (*backend.AcquireRequest, backend.AcquireReply) {
	s.Helper()
	r, g := s.a.hold(k)
	for _, entry := range entries {
		s.b.park(backend.Parked, k, entry)
	}
	return r, g
}

func parking() []rule {
	return []rule{
		fast("a key that no request has parks nothing", func(s *scene) {
			s.a.park(backend.ParkNone, &s.job, "1")
			r, g := s.a.hold(&s.claim)
			s.a.complete(true, completion(r, g.Token))
			s.a.park(backend.ParkNone, &s.claim, "1")
			k := s.a.Key(backend.KindExclusive, s.job.Name+"-died")
			s.a.expired(&k)
			s.a.park(backend.ParkNone, &k, "1")
			s.check(s.inspect(&k).Parked == 0, "an entry is parked")
		}),
		fast("a held, reserved or cooling key parks entries", func(s *scene) {
			s.b.listen()
			r, g := s.a.hold(&s.job)
			reply := s.a.park(backend.Parked, &s.job, "1")
			s.check(reply.Before == 0 && reply.Count == 1, "the reply is %+v", reply)
			s.b.wait(&s.job)
			s.a.end(r, g.Token)
			s.state(&s.job, backend.StateReserved)
			reply = s.a.park(backend.Parked, &s.job, "2")
			s.check(reply.Before == 1 && reply.Count == 2, "the reply is %+v", reply)
			k := s.a.Key(backend.KindExclusive, s.job.Name+"-cooling")
			r, g = s.a.hold(&k)
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(time.Minute)
			s.a.release(true, end)
			s.a.park(backend.Parked, &k, "1")
		}),
		fast("an entry that is parked again keeps its place", func(s *scene) {
			s.parked(&s.job, "2", "1", "3")
			s.b.wake(&s.job, 1, "", "2")
			reply := s.b.park(backend.Parked, &s.job, "2")
			s.check(reply.Before == 0 && reply.Count == 3 && reply.Age > 0 && reply.Age == reply.Oldest, "the reply is %+v", reply)
			reply = s.b.park(backend.Parked, &s.job, "1")
			s.check(reply.Before == 1 && 0 < reply.Age && reply.Age < reply.Oldest, "the reply is %+v", reply)
			s.b.wake(&s.job, 3, "", "2", "1", "3")
		}),
		fast("a full key refuses a new entry", func(s *scene) {
			s.parked(&s.job, "1", "2", "3")
			reply := s.b.park(backend.ParkFull, &s.job, "4")
			s.check(reply.Count == 3 && reply.Oldest > 0, "the reply is %+v", reply)
			s.b.park(backend.Parked, &s.job, "2")
			s.b.wake(&s.job, 4, "", "1", "2", "3")
		}),
		fast("woken entries count", func(s *scene) {
			s.parked(&s.job, "1", "2", "3")
			s.b.wake(&s.job, 0, "")
			s.b.wake(&s.job, 1, "", "1")
			s.b.wake(&s.job, 1, "")
			reply := s.b.wake(&s.job, 2, "", "2")
			s.check(reply.Count == 3 && reply.Oldest > 0 && reply.Removed == 0 && reply.Age == 0, "the reply is %+v", reply)
			s.b.park(backend.Parked, &s.job, "1") // now it no longer counts as woken
			s.b.wake(&s.job, 2, "", "1")
		}),
		fast("only entries with the prefix are woken", func(s *scene) {
			s.parked(&s.job, "a1", "b1", "a2")
			s.b.wake(&s.job, 1, "b", "b1")
			s.b.wake(&s.job, 2, "a", "a1", "a2")
			s.b.wake(&s.job, 9, "c")
		}),
		fast("skipped entries are neither woken nor counted", func(s *scene) {
			s.parked(&s.job, "a1", "b1", "ab1")
			s.b.wake(&s.job, 1, "", "a1")
			s.b.unpark(backend.UnparkRequest{Key: &s.job, Woken: 1, Skip: []string{"a"}}, "b1")
			s.b.unpark(backend.UnparkRequest{Key: &s.job, Woken: 9, Skip: []string{"b", "a"}})
			reply := s.b.unpark(backend.UnparkRequest{Key: &s.job, Woken: 1, Prefix: "a", Skip: []string{"a1"}, Remove: []string{"a1"}}, "ab1")
			s.check(reply.Removed == 1, "the reply is %+v", reply)
		}),
		slow("an entry counts as woken for a time", func(s *scene) {
			s.parked(&s.job, "1", "2")
			s.b.wake(&s.job, 1, "", "1")
			time.Sleep(backend.WokenTime - time.Second)
			s.b.wake(&s.job, 1, "")
			s.b.wake(&s.job, 2, "", "2")
			time.Sleep(time.Second)
			s.b.wake(&s.job, 2, "", "1")
			time.Sleep(backend.WokenTime)
			s.b.wake(&s.job, 2, "", "1", "2")
		}),
		fast("Unpark removes entries", func(s *scene) {
			s.parked(&s.job, "1", "2", "3")
			s.b.wake(&s.job, 2, "", "1", "2")
			reply := s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: []string{"2", "1", "x"}, Woken: 1}, "3")
			s.check(reply.Removed == 2 && reply.Count == 1 && reply.Age > reply.Oldest && reply.Oldest > 0, "the reply is %+v", reply)
			reply = s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: []string{"2", "3"}, Woken: 1})
			s.check(reply.Removed == 1 && reply.Count == 0 && reply.Age > 0 && reply.Oldest == 0, "the reply is %+v", reply)
			reply = s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: []string{"3"}, Woken: 1})
			s.check(reply.Removed == 0 && reply.Age == 0, "the reply is %+v", reply)
		}),
		fast("Unpark with Marked keeps entries that were parked again", func(s *scene) {
			s.parked(&s.job, "1", "2", "3")
			first := s.b.wake(&s.job, 3, "", "1", "2", "3")
			s.c.park(backend.Parked, &s.job, "2")
			s.c.park(backend.Parked, &s.job, "3")
			second := s.c.wake(&s.job, 2, "", "2")
			all := []string{"1", "2", "3"}
			reply := s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: all, Marked: first.Marked})
			s.check(reply.Removed == 1 && reply.Count == 2, "the reply to the first waker is %+v", reply)
			reply = s.c.unpark(backend.UnparkRequest{Key: &s.job, Remove: all, Marked: second.Marked})
			s.check(reply.Removed == 1 && reply.Count == 1, "the reply to the second waker is %+v", reply)
			time.Sleep(backend.WokenTime)
			old := s.b.wake(&s.job, 1, "", "3")
			time.Sleep(backend.WokenTime)
			reply = s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: all, Marked: old.Marked})
			s.check(reply.Removed == 0 && reply.Count == 1, "the reply after the time of the mark is %+v", reply)
			reply = s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: all})
			s.check(reply.Removed == 1 && reply.Count == 0, "the reply to the task is %+v", reply)
		}),
		fast("many entries with another prefix do not hide all others", func(s *scene) {
			s.a.hold(&s.job)
			var others []string
			for i := range 150 {
				others = append(others, fmt.Sprint("other ", i))
				s.b.parkIn(backend.Parked, backend.ParkRequest{Key: &s.job, Entry: others[i], Most: 1000, Keep: anHour})
			}
			s.b.parkIn(backend.Parked, backend.ParkRequest{Key: &s.job, Entry: "mine", Most: 1000, Keep: anHour})
			s.b.wake(&s.job, 3, "mine", "mine")
			s.b.wake(&s.job, 200, "other", others...)
		}),
		slow("entries are kept as long as the last one that is parked", func(s *scene) {
			r, _ := s.a.hold(&s.job)
			s.b.parkIn(backend.Parked, backend.ParkRequest{Key: &s.job, Entry: "1", Most: 2, Keep: anHour})
			s.b.parkIn(backend.Parked, backend.ParkRequest{Key: &s.job, Entry: "2", Most: 2, Keep: time.Minute})
			s.a.renew(backend.VerdictKept, renewal(r, anHour))
			time.Sleep(anHour - time.Second)
			s.check(s.inspect(&s.job).Parked == 2, "an entry has ended")
			time.Sleep(2 * time.Second)
			s.check(s.inspect(&s.job).Parked == 0, "the entries have not ended")
			_, g := s.b.hold(&s.job)
			s.check(g.Parked, "the grant does not report that there were entries")
			s.b.wake(&s.job, 1, "")
		}),
		fast("Inspect returns the oldest entry", func(s *scene) {
			s.parked(&s.job, "2", "1")
			st := s.state(&s.job, backend.StateHeld)
			s.check(st.Parked == 2 && st.OldestParked == "2" && st.ParkedFor > 0, "the state is %+v", st)
			s.check(s.inspect(&s.claim).Parked == 0, "the once key has entries")
		}),
	}
}

func parkedReplies() []rule {
	return []rule{
		fast("a grant and a release report parked entries", func(s *scene) {
			r, g := s.parked(&s.job, "1")
			s.check(!g.Parked, "the first grant is %+v", g)
			s.check(s.a.acquire(backend.OutcomeGranted, r).Parked, "the repeated grant does not report them")
			s.check(!s.b.acquire(backend.OutcomeBusy, request(&s.job)).Parked, "a busy reply reports them")
			end := ending(r, g.Token)
			end.Plain = g.Plain
			s.check(s.a.release(true, end).Parked, "the release does not report them")
			r, g = s.b.hold(&s.job)
			s.check(g.Parked, "the next grant does not report them")
			s.b.unpark(backend.UnparkRequest{Key: &s.job, Remove: []string{"1"}})
			s.check(!s.b.release(true, ending(r, g.Token)).Parked, "the release reports entries when all are removed")
			_, g = s.b.hold(&s.job)
			s.check(!g.Parked, "the grant reports entries when all are removed")
		}),
		fast("an abandoned key reports parked entries", func(s *scene) {
			r, g := s.parked(&s.claim, "1")
			reply := s.a.release(true, &backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: g.Token, Retention: day, Abandon: true})
			s.check(reply.Parked, "the release does not report them")
			_, g = s.b.hold(&s.claim)
			s.check(g.Parked && g.Abandoned, "the takeover is %+v", g)
		}),
		fast("a takeover reports parked entries", func(s *scene) {
			s.a.hold(&s.job, expiring)
			s.b.park(backend.Parked, &s.job, "1")
			time.Sleep(short + 20*time.Millisecond)
			_, g := s.b.hold(&s.job)
			s.check(g.Parked && g.Abandoned, "the takeover is %+v", g)
		}),
		fast("a release to a waiter does not report entries", func(s *scene) {
			s.b.listen()
			r, g := s.parked(&s.job, "1")
			waiter := s.b.wait(&s.job)
			s.check(!s.a.release(true, ending(r, g.Token)).Parked, "the release of a reserved key reports them")
			s.b.getsTurn(waiter)
			s.check(s.b.acquire(backend.OutcomeGranted, waiter).Parked, "the grant of the waiter does not report them")
		}),
		fast("a withdrawn reservation notifies the Locker that parked last", func(s *scene) {
			s.b.listen()
			wake := backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name}
			r, g := s.parked(&s.job, "1")
			first, second := s.b.wait(&s.job), s.b.wait(&s.job)
			s.check(!s.a.release(true, ending(r, g.Token)).Parked, "the release of a reserved key reports them")
			s.b.getsTurn(first)
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: first.ID, Retention: day})
			s.b.getsTurn(second) // the key is not free: another request waits
			s.b.getsNothing()
			s.b.Withdraw(backend.WithdrawRequest{Key: &s.job, ID: second.ID, Retention: day})
			s.b.gets(wake)
		}),
		fast("a release that cools does not report entries", func(s *scene) {
			r, g := s.parked(&s.job, "1")
			end := ending(r, g.Token)
			end.CoolUntil = time.Now().Add(short)
			s.check(!s.a.release(true, end).Parked, "the release reports them")
			time.Sleep(short + 20*time.Millisecond)
			_, g = s.b.hold(&s.job)
			s.check(g.Parked, "the grant does not report them")
		}),
		fast("release and acquire reports parked entries", func(s *scene) {
			r, g := s.parked(&s.job, "1")
			end := ending(r, g.Token)
			end.Next = request(&s.job)
			s.check(s.a.release(true, end).Next.Parked, "the grant does not report them")
			end.Repeated = true
			s.check(s.a.release(false, end).Next.Parked, "the repeated grant does not report them")
		}),
		fast("a completion and a replay report parked entries", func(s *scene) {
			r, g := s.parked(&s.claim, "1")
			for range 2 { // the second one is a repeat
				reply, err := s.a.Complete(s.Context(), *completion(r, g.Token))
				s.check(err == nil && reply.Released && reply.Parked, "Complete returns %+v and error %v", reply, err)
			}
			s.check(s.b.acquire(backend.OutcomeDone, request(&s.claim)).Parked, "the replay does not report them")
			s.b.wake(&s.claim, 1, "", "1")
			s.b.unpark(backend.UnparkRequest{Key: &s.claim, Remove: []string{"1"}})
			s.check(!s.b.acquire(backend.OutcomeDone, request(&s.claim)).Parked, "the replay reports entries when all are removed")
		}),
		slow("a record with entries ends at its time", func(s *scene) {
			r, g := s.parked(&s.claim, "1")
			c := completion(r, g.Token)
			c.Keep = 2 * time.Minute
			s.a.complete(true, c)
			time.Sleep(c.Keep - time.Second)
			s.state(&s.claim, backend.StateDone)
			time.Sleep(2 * time.Second)
			s.state(&s.claim, backend.StateFree)
			_, g = s.b.hold(&s.claim)
			s.check(g.Parked && g.Attempt == 1, "the grant is %+v", g)
		}),
		slow("a free key remembers entries for a while", func(s *scene) {
			r, g := s.parked(&s.job, "1")
			s.a.end(r, g.Token)
			time.Sleep(backend.ParkedTTL - time.Second)
			r, g = s.b.hold(&s.job)
			s.check(g.Parked, "the grant does not report its entries")
			s.b.end(r, g.Token)
			time.Sleep(backend.ParkedTTL + time.Second)
			_, g = s.b.hold(&s.job)
			s.check(!g.Parked, "the grant reports entries after the data of the key has expired")
			s.b.wake(&s.job, 1, "", "1")
		}),
		slow("a withdrawn, cleared or revoked key remembers entries", func(s *scene) {
			r, _ := s.parked(&s.job, "1")
			s.c.revoke(&s.job)
			s.a.withdraw(r, false, func(st backend.Status) bool { return st.State == backend.StateFree })
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			time.Sleep(backend.ParkedTTL - time.Second)
			_, g := s.b.hold(&s.job)
			s.check(g.Parked, "the grant does not report its entries")
		}),
		fast("CallParkingLocker notifies the Locker that parked last", func(s *scene) {
			s.a.listen()
			s.b.listen()
			s.calls(&s.job, 0)
			s.a.hold(&s.job)
			s.calls(&s.job, 0) // a plain hold has no parking Locker
			s.a.park(backend.Parked, &s.job, "1")
			s.b.park(backend.Parked, &s.job, "2")
			s.calls(&s.job, 1)
			s.b.gets(backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive, Name: s.job.Name})
			s.a.getsNothing()
			claim := s.a.Key(backend.KindOnce, s.claim.Name+" {é}%\x00")
			s.b.hold(&claim)
			s.a.park(backend.Parked, &claim, "1")
			s.calls(&claim, 1)
			s.a.gets(backend.Notification{Event: backend.EventWake, Kind: backend.KindOnce, Name: claim.Name})
			s.b.unpark(backend.UnparkRequest{Key: &claim, Remove: []string{"1"}})
			s.calls(&claim, 0)
			s.c.park(backend.Parked, &s.job, "1") // c does not listen
			s.calls(&s.job, 0)
			s.b.getsNothing()
		}),
		fast("List does not yield parked entries", func(s *scene) {
			s.parked(&s.job, "1", "2")
			s.b.wake(&s.job, 1, "", "1")
			s.lists(backend.ListRequest{Match: s.job.Name + "*"}, "1  held")
		}),
	}
}

// calls calls CallParkingLocker and checks the number of subscribers.
func (s *scene) calls(k *backend.Key, want int) {
	s.Helper()
	got, err := s.c.CallParkingLocker(s.Context(), k)
	s.check(err == nil && got == want, "CallParkingLocker reaches %d with error %v, want %d", got, err, want)
}
