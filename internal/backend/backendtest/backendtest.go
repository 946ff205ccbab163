// Package backendtest has the tests that each backend must pass. Each case checks one rule.
package backendtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// World is a set of keys that several backends share.
type World struct {
	// Backend returns a backend for a Locker. The test closes it.
	Backend func(locker string) backend.Backend
}

const (
	long  = 30 * time.Second // a lease that does not expire in a test
	short = time.Second      // a lease that expires while a test waits; a busy machine delays a request by less
	day   = 24 * time.Hour
	used  = 7 // the last token that a test uses, counted from the first of the grant
)

// Run tests a backend in real time and runs its cases in parallel. It skips the cases that wait for
// more than a second. It calls world for each case. Two cases may get the same keys, because each
// case uses its own names.
func Run(t *testing.T, world func(t *testing.T) World) {
	for _, c := range cases() {
		if !c.slow {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, world(t))
			})
		}
	}
}

// RunInBubble tests a backend in virtual time. Each case, including world, runs in a bubble of
// testing/synctest.
func RunInBubble(t *testing.T, world func(t *testing.T) World) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, world(t)) })
		})
	}
}

// rule is a case: a rule that each backend must follow, and its test.
type rule struct {
	name string
	slow bool // the case waits for more than a second
	do   func(*scene)
}

func (c *rule) run(t *testing.T, w World) {
	t.Helper()
	s := &scene{T: t}
	ctx, cancel := context.WithCancel(context.Background())
	for i := range s.all {
		p := &process{Scene: s, id: rand.Text(), ctx: ctx}
		p.Backend = w.Backend(p.id)
		s.all[i] = p
	}
	s.a, s.b, s.c = s.all[0], s.all[1], s.all[2]
	t.Cleanup(func() { // Listen must end before its backend is closed
		cancel()
		s.listening.Wait()
		for _, p := range s.all {
			p.Close()
		}
	})
	name := rand.Text() // other cases may use the same World
	s.job, s.claim = s.a.Key(backend.KindExclusive, name), s.a.Key(backend.KindOnce, name)
	c.do(s)
}

// scene has three processes, an exclusive key and a once key.
type scene struct {
	*testing.T
	a, b, c    *process
	all        [3]*process
	job, claim backend.Key
	listening  sync.WaitGroup
}

// process is a backend of one Locker.
type process struct {
	backend.Backend
	Scene         *scene
	id            string
	ctx           context.Context //nolint:containedctx // of Listen
	notifications chan backend.Notification
}

// request returns a request with default values, changed by edit.
func request(k *backend.Key, edit ...func(*backend.AcquireRequest)) *backend.AcquireRequest {
	r := &backend.AcquireRequest{
		Key: k, ID: rand.Text(), Holder: "holder", Lease: long, Retention: long + day, First: true, Timeout: backend.CallTimeout,
	}
	for _, e := range edit {
		e(r)
	}
	return r
}

func expiring(r *backend.AcquireRequest)   { r.Lease = short }
func queued(r *backend.AcquireRequest)     { r.Queue = true }
func atMostOnce(r *backend.AcquireRequest) { r.AtMostOnce = true }
func named(holder string) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Holder = holder }
}

func digest(f string) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Fingerprint = f }
}

// acquire sends a request and checks the outcome.
func (p *process) acquire(want backend.Outcome, r *backend.AcquireRequest) backend.AcquireReply {
	p.Scene.Helper()
	reply, err := p.Acquire(p.Scene.Context(), *r)
	if err != nil {
		p.Scene.Fatalf("Acquire: %v", err)
	}
	if reply.Outcome != want {
		p.Scene.Fatalf("Acquire returns outcome %d, want %d: %+v", reply.Outcome, want, reply)
	}
	if reply.Sent.IsZero() {
		p.Scene.Error("Acquire does not return when it sent the request")
	}
	return reply
}

// hold acquires a key with a new request.
func (p *process) hold(k *backend.Key, edit ...func(*backend.AcquireRequest)) (*backend.AcquireRequest, backend.AcquireReply) {
	p.Scene.Helper()
	r := request(k, edit...)
	return r, p.acquire(backend.OutcomeGranted, r)
}

// expired acquires a key and waits until the lease has expired.
func (p *process) expired(k *backend.Key, edit ...func(*backend.AcquireRequest)) (*backend.AcquireRequest, backend.AcquireReply) {
	p.Scene.Helper()
	r, reply := p.hold(k, append(edit, expiring)...)
	time.Sleep(short + 20*time.Millisecond)
	return r, reply
}

// wait sends a request that enters the queue.
func (p *process) wait(k *backend.Key, edit ...func(*backend.AcquireRequest)) *backend.AcquireRequest {
	p.Scene.Helper()
	time.Sleep(time.Millisecond) // waiters that arrive in the same microsecond have no defined order
	r := request(k, append(edit, queued)...)
	p.acquire(backend.OutcomeBusy, r)
	return r
}

func atLeast(token int64) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Floor = token }
}

// ending returns the release of the hold of r. token is the last one that the hold has used; the id of
// r alone decides whether the release is its holder's.
func ending(r *backend.AcquireRequest, token int64) *backend.ReleaseRequest {
	return &backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: token, Retention: time.Minute, Share: r.Share}
}

// release sends a release and checks whether it had an effect.
func (p *process) release(want bool, r *backend.ReleaseRequest) backend.ReleaseReply {
	p.Scene.Helper()
	reply, err := p.Release(p.Scene.Context(), *r)
	if err != nil {
		p.Scene.Fatalf("Release: %v", err)
	}
	if reply.Released != want {
		p.Scene.Fatalf("Release returns %v, want %v", reply.Released, want)
	}
	return reply
}

// end releases a hold.
func (p *process) end(r *backend.AcquireRequest, token int64) {
	p.Scene.Helper()
	p.release(true, ending(r, token))
}

func (p *process) abandon(r *backend.AcquireRequest, token int64) {
	p.Scene.Helper()
	p.release(true, &backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: token, Retention: day, Abandon: true})
}

func completion(r *backend.AcquireRequest, token int64) *backend.CompleteRequest {
	return &backend.CompleteRequest{Key: r.Key, ID: r.ID, Token: token, Record: []byte("record"), Keep: time.Hour}
}

func (p *process) complete(want bool, r *backend.CompleteRequest) {
	p.Scene.Helper()
	reply, err := p.Complete(p.Scene.Context(), *r)
	if err != nil || reply.Released != want {
		p.Scene.Fatalf("Complete returns %v and error %v, want %v", reply.Released, err, want)
	}
}

func (p *process) renew(want backend.Verdict, r backend.RenewRequest) {
	p.Scene.Helper()
	if reply := p.Renew(p.Scene.Context(), []backend.RenewRequest{r})[0]; reply.Err != nil || reply.Verdict != want {
		p.Scene.Fatalf("Renew returns %+v, want verdict %d", reply, want)
	}
}

func renewal(r *backend.AcquireRequest, lease time.Duration) backend.RenewRequest {
	return backend.RenewRequest{Key: r.Key, ID: r.ID, Lease: lease, Retention: lease + day, Share: r.Share}
}

// withdraw withdraws a request and waits until done returns true for the status of the key.
func (p *process) withdraw(r *backend.AcquireRequest, repeated bool, done func(backend.Status) bool) {
	p.Scene.Helper()
	p.Withdraw(backend.WithdrawRequest{Key: r.Key, ID: r.ID, Retention: time.Minute, Granted: true, Repeated: repeated, Share: r.Share})
	p.Scene.until("the withdrawal has its effect", func() bool { return done(p.Scene.inspect(r.Key)) })
}

func (s *scene) until(what string, done func() bool) {
	s.Helper()
	for start := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			s.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (s *scene) inspect(k *backend.Key) backend.Status {
	s.Helper()
	st, err := s.c.Inspect(s.Context(), k, backend.WholeRecord)
	if err != nil {
		s.Fatalf("Inspect: %v", err)
	}
	return st
}

// state checks the state of a key.
func (s *scene) state(k *backend.Key, want backend.State) backend.Status {
	s.Helper()
	st := s.inspect(k)
	if st.State != want {
		s.Fatalf("the key is %s, want %s: %+v", st.State, want, st)
	}
	return st
}

// revoke revokes the hold of a key, of any token.
func (p *process) revoke(k *backend.Key) {
	p.Scene.Helper()
	p.revokes(true, backend.RevokeRequest{Key: k})
}

func (p *process) revokes(want bool, r backend.RevokeRequest) {
	p.Scene.Helper()
	if got, err := p.Revoke(p.Scene.Context(), r); err != nil || got != want {
		p.Scene.Errorf("Revoke returns %t and error %v, want %t", got, err, want)
	}
}

func (s *scene) clear(want backend.ClearReply, r backend.ClearRequest) {
	s.Helper()
	if got, err := s.c.Clear(s.Context(), r); err != nil || got != want {
		s.Fatalf("Clear returns %d and error %v, want %d", got, err, want)
	}
}

// check fails the test if ok is false.
func (s *scene) check(ok bool, format string, args ...any) {
	s.Helper()
	if !ok {
		s.Errorf(format, args...)
	}
}

// listen subscribes and returns when the subscription is up.
func (p *process) listen() {
	p.Scene.Helper()
	p.notifications = make(chan backend.Notification, 100)
	p.Scene.listening.Go(func() {
		p.Listen(p.ctx, func(n backend.Notification) { p.notifications <- n })
	})
	p.gets(backend.Notification{Event: backend.EventSubscribed})
}

// gets waits for a notification.
func (p *process) gets(want backend.Notification) {
	p.Scene.Helper()
	select {
	case got := <-p.notifications:
		if got != want {
			p.Scene.Fatalf("notification %+v, want %+v", got, want)
		}
	case <-time.After(10 * time.Second):
		p.Scene.Fatalf("no notification, want %+v", want)
	}
}

func (p *process) getsTurn(r *backend.AcquireRequest) {
	p.Scene.Helper()
	p.gets(backend.Notification{Event: backend.EventTurn, Request: r.ID})
}

// getsCooling waits for a notification about a cooldown that ends after most, or a little earlier.
func (p *process) getsCooling(r *backend.AcquireRequest, most time.Duration) {
	p.Scene.Helper()
	select {
	case got := <-p.notifications:
		if got.Event != backend.EventCooling || got.Request != r.ID || got.In > most || got.In <= most-short {
			p.Scene.Fatalf("notification %+v, want the end of a cooldown of %v for %s", got, most, r.ID)
		}
	case <-time.After(10 * time.Second):
		p.Scene.Fatal("no notification of a cooldown")
	}
}

func (p *process) getsNothing() {
	p.Scene.Helper()
	select {
	case got := <-p.notifications:
		p.Scene.Fatalf("notification %+v, want none", got)
	case <-time.After(30 * time.Millisecond):
	}
}

// list returns the kinds, names and states of the entries, sorted. The names are without the prefix
// of the scene.
func (s *scene) list(r backend.ListRequest) (names []string) {
	s.Helper()
	for e, err := range s.a.List(s.Context(), r) {
		if err != nil {
			s.Fatalf("List: %v", err)
		}
		names = append(names, fmt.Sprintf("%d %s %s", e.Kind, e.Name[min(len(e.Name), len(s.job.Name)):], e.State))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
