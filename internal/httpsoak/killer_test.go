package httpsoak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
)

// aimTime bounds the time until a server reaches the step at which it is to be killed. After that
// it is killed at any step.
const aimTime = 5 * time.Second

// aim is the step of a run at which a process is killed. Without a step the kill comes from
// outside, at a random moment.
type aim struct {
	step string
	mount
}

// plan lists how servers are killed. It is repeated until the end.
var plan = []aim{
	{atWorking, orders},
	{atWorking, payouts},
	{},
	{atSent, orders},
	{},
	{atEnded, orders},
	{},
	{atGranted, orders},
	{},
	{atBegun, quick},
	{},
	{atRecorded, orders},
	{},
	{atEnded, payouts},
	{},
	{atGranted, payouts},
	{},
	{atSent, payouts},
	{},
}

// death is a process that was killed.
type death struct {
	step string // "" from outside
	at   int64  // before the kill
	gone int64  // after it
}

// killer keeps servers running, and kills them. It is for one goroutine.
type killer struct {
	t      *testing.T
	task   task // of all
	slots  []*slot
	deaths map[string]*death // by process
	client *http.Client
	lure   func(m mount, addr string) // makes a run begin there
}

// slot is an address and the process that serves it now.
type slot struct {
	name, addr string
	n          int // processes so far
	*chaos.Process
	ready chan struct{} // closed when it listens
}

func newKiller(t *testing.T, task task, servers int) *killer {
	t.Helper()
	k := &killer{t: t, task: task, deaths: map[string]*death{}, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for i := range servers {
		s := &slot{name: fmt.Sprintf("server%d", i), addr: freeAddr(t)}
		k.start(s)
		k.slots = append(k.slots, s)
	}
	for _, s := range k.slots {
		s.await()
	}
	return k
}

// freeAddr returns an address below the ports that the system gives to connections. Otherwise a
// client that connects while no server listens could get that very port, and be connected with
// itself.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", 12000+rand.IntN(18000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func (k *killer) addrs() (all []string) {
	for _, s := range k.slots {
		all = append(all, s.addr)
	}
	return all
}

// start starts the next process of s.
func (k *killer) start(s *slot) {
	s.n++
	task, ready := k.task, make(chan struct{})
	task.Name, task.Addr = s.proc(), s.addr
	s.ready = ready
	s.Process = chaos.Start(k.t, task, func(*chaos.Process, string) { close(ready) })
}

// await waits until the process listens, or has ended.
func (s *slot) await() {
	select {
	case <-s.ready:
	case <-s.Ended:
	}
}

// proc is the name of the process that s has now.
func (s *slot) proc() string { return fmt.Sprintf("%s.%d", s.name, s.n) }

// kill kills a random server at random intervals of every on average, and starts it again at once,
// until stop is closed.
func (k *killer) kill(every time.Duration, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(every/2 + rand.N(every)):
		}
		s := k.slots[rand.IntN(len(k.slots))]
		s.await()
		k.killOne(s, plan[n%len(plan)])
		k.start(s)
	}
}

func (k *killer) killOne(s *slot, how aim) {
	if how.step != "" && k.order(s, how) == nil {
		k.lure(how.mount, s.addr)
		select {
		case <-s.Ended:
		case <-time.After(aimTime):
		}
	}
	d := &death{at: chaos.Now()}
	s.Kill() // no effect if it has died as ordered: then the journal has the time
	d.gone = chaos.Now()
	if !s.Killed() {
		k.t.Errorf("%s ended by itself: %v", s.proc(), s.Err)
	}
	k.deaths[s.proc()] = d
}

// order sends s the step at which it dies.
func (k *killer) order(s *slot, how aim) error {
	ctx, cancel := context.WithTimeout(k.t.Context(), aimTime)
	defer cancel()
	u := url.URL{Scheme: "http", Host: s.addr, Path: "/die", RawQuery: url.Values{"step": {how.step}, "path": {how.path}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// end ends all servers, properly if it can, before the journal is read.
func (k *killer) end() {
	for _, s := range k.slots {
		s.Close()
	}
	for _, s := range k.slots {
		select {
		case <-s.Ended:
		case <-time.After(2 * endTime):
			s.Kill()
		}
		if s.Err != nil {
			k.t.Errorf("%s: %v", s.proc(), s.Err)
		}
	}
}
