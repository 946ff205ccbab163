package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// manyShares is a number of shares that a script of Redis removes, or notifies of, only in several
// steps.
const manyShares = 520

// crowd adds shares to a key that are not released, and returns their requests.
func (p *process) crowd(k *backend.Key, edit ...func(*backend.AcquireRequest)) (rs []*backend.AcquireRequest) {
	p.Scene.Helper()
	for range manyShares {
		r, _ := p.hold(k, append(edit, reader)...)
		rs = append(rs, r)
	}
	return rs
}

// manyExpired has the cases of keys with many expired shares: each call gets the reply that it gets
// after they were removed.
func manyExpired() []rule {
	steps := func(name string, do func(s *scene)) rule {
		return slow("many shares have expired: "+name, func(s *scene) {
			s.a.listen()
			s.a.crowd(&s.job, expiring)
			do(s)
		})
	}
	expire := func() { time.Sleep(short + 20*time.Millisecond) }
	return []rule{
		steps("a share fits", func(s *scene) {
			r, _ := s.a.hold(&s.job, reader)
			expire()
			s.b.hold(&s.job, limited(2, 1))
			s.weights(&s.job, 2)
			s.a.endShare(r)
			s.weights(&s.job, 1)
		}),
		steps("a release serves the queue", func(s *scene) {
			r, _ := s.a.hold(&s.job, reader)
			one, two := s.a.wait(&s.job, limited(2, 2)), s.a.wait(&s.job, limited(2, 1))
			expire()
			s.a.endShare(r)
			s.a.getsTurn(one)
			s.a.withdraw(one, false, func(backend.Status) bool { return true })
			s.a.getsTurn(two)
		}),
		steps("a withdrawal serves the queue", func(s *scene) {
			s.a.hold(&s.job, reader)
			writer, w := s.b.wait(&s.job), s.a.wait(&s.job, limited(2, 1))
			expire()
			s.b.withdraw(writer, false, func(st backend.Status) bool { return st.Queue == 0 })
			s.a.getsTurn(w)
		}),
		steps("an exclusive request gets a key without other shares", func(s *scene) {
			expire()
			s.b.hold(&s.job)
		}),
		steps("a withdrawal reserves a key without other shares", func(s *scene) {
			writer, w := s.b.wait(&s.job), s.a.wait(&s.job, limited(2, 1))
			expire()
			s.b.withdraw(writer, false, func(st backend.Status) bool { return st.State == backend.StateReserved })
			s.a.getsTurn(w)
		}),
		steps("a key is cleared while its other shares cool", func(s *scene) {
			r, _ := s.a.hold(&s.job, reader)
			expire()
			s.clear(backend.ClearHeld, backend.ClearRequest{Key: &s.job})
			end := ending(r, 0)
			end.CoolUntil = time.Now().Add(time.Hour)
			s.a.release(true, end)
			s.a.crowd(&s.job, expiring)
			expire()
			s.clear(backend.Cleared, backend.ClearRequest{Key: &s.job})
			s.b.hold(&s.job)
		}),
		fast("a revocation ends many shares and notifies their holders", func(s *scene) {
			s.a.listen()
			rs := s.a.crowd(&s.job, named("many"))
			waiting := map[string]bool{}
			for _, r := range rs {
				waiting[r.ID] = true
			}
			failed := make(chan error, 1)
			go func() {
				_, err := s.c.Revoke(s.Context(), backend.RevokeRequest{Key: &s.job})
				failed <- err
			}()
			for range rs {
				n := <-s.a.notifications
				if n.Event != backend.EventRevoked || !waiting[n.Request] {
					s.Fatalf("notification %+v, want a revoked share, each once", n)
				}
				delete(waiting, n.Request)
			}
			s.check(<-failed == nil, "Revoke failed")
			for i, r := range rs {
				s.a.endShare(r)
				if i == 0 {
					s.check(s.weights(&s.job, manyShares-1).Revoked, "Revoked is false")
				}
			}
			s.b.hold(&s.job, limited(1, 1), named("next"))
		}),
	}
}
