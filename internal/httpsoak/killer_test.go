package httpsoak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"
)

// aimTime bounds the time until a server reaches the step at which it is to be killed. After that it is killed at any step.
const aimTime = 5 * time.Second

// aim says at which step of a run to kill; without a step it is from outside, at a random moment.
type aim struct {
	step string
	mount
}

// plan is how servers are killed, again and again.
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
	cmd        *exec.Cmd
	in         io.Closer
	ready      chan struct{} // closed when it listens, or has ended
	ended      chan struct{} // closed then; err says how
	err        error
}

func newKiller(t *testing.T, task task, servers int) *killer {
	t.Helper()
	k := &killer{t: t, task: task, deaths: map[string]*death{}, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(k.end)
	for i := range servers {
		s := &slot{name: fmt.Sprintf("server%d", i), addr: freeAddr(t)}
		if err := k.start(s); err != nil {
			t.Fatal(err)
		}
		k.slots = append(k.slots, s)
	}
	for _, s := range k.slots {
		<-s.ready
	}
	return k
}

// freeAddr is below the ports that the system gives to connections: a client that tries to connect while nobody listens could else get
// that very port, and then be connected with itself.
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
func (k *killer) start(s *slot) error {
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it lives until kill or end
	cmd.Env, cmd.Stderr = append(os.Environ(), serverEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.n++
	s.cmd, s.in, s.ready, s.ended = cmd, in, make(chan struct{}), make(chan struct{})
	go func() { // ends with the process
		_, _ = bufio.NewReader(out).ReadString('\n')
		close(s.ready)
		s.err = cmd.Wait()
		close(s.ended)
	}()
	task := k.task
	task.Name, task.Addr = s.proc(), s.addr
	return json.NewEncoder(in).Encode(task)
}

// proc is the name of the process that s has now.
func (s *slot) proc() string { return fmt.Sprintf("%s.%d", s.name, s.n) }

// kill kills the server that is chosen by chance every so often, and starts it again at once, until stop.
func (k *killer) kill(every time.Duration, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(every/2 + rand.N(every)):
		}
		s := k.slots[rand.IntN(len(k.slots))]
		<-s.ready
		k.killOne(s, plan[n%len(plan)])
		if err := k.start(s); err != nil {
			k.t.Error(err)
			return
		}
	}
}

func (k *killer) killOne(s *slot, how aim) {
	if how.step != "" && k.order(s, how) == nil {
		k.lure(how.mount, s.addr)
		select {
		case <-s.ended:
		case <-time.After(aimTime):
		}
	}
	d := &death{at: now()}
	_ = s.cmd.Process.Kill() // an error means that it has died as it was asked to: then the journal knows when
	<-s.ended
	d.gone = now()
	_ = s.in.Close()
	if s.cmd.ProcessState.Exited() {
		k.t.Errorf("%s ended by itself: %v", s.proc(), s.err)
	}
	k.deaths[s.proc()] = d
}

// order tells s at which step to die.
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

// end ends what still runs, properly if it can. It is called twice: before the journal is read, and if the test fails before that.
func (k *killer) end() {
	slots := k.slots
	k.slots = nil
	for _, s := range slots {
		_ = s.in.Close()
	}
	for _, s := range slots {
		select {
		case <-s.ended:
		case <-time.After(2 * endTime):
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
		if s.err != nil && k.deaths[s.proc()] == nil {
			k.t.Errorf("%s: %v", s.proc(), s.err)
		}
	}
}
