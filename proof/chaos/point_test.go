package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// The points of a hold or a run at which a worker can be stopped or killed. A point can also be a
// script and "sent" or "answered": Redis does not have the command yet, or it has run the command
// and the worker has not read the reply.
const (
	atWaiting  = "waiting"  // the call waits for another holder
	atGranted  = "granted"  // the process has the key, the handler has not begun
	atBegun    = "begun"    // the handler has written its first line
	atWorking  = "working"  // between the handler's last check and its effect
	atEnded    = "ended"    // after the effect, before the release or the record
	atRecorded = "recorded" // the answer of an HTTP request is about to be sent
	atSent     = "sent"     // it was sent, the request is not over
)

// order tells a worker to stop or to die the next time that it is at a point of a key.
type order struct {
	Point string
	Keys  string // prefix of the key
	Stop  bool   // it stops until it reads another line, else it dies
}

// tripwire obeys orders. It looks at the steps of handlers and at the commands of the network.
type tripwire struct {
	w     *worker
	order atomic.Pointer[order]
	goOn  chan struct{}
	names resp.Names
}

// cancel is the line that cancels the order.
const cancel = `"cancel"`

// hear reads orders. A line that is no order ends a stop.
func (t *tripwire) hear(in *bufio.Scanner) {
	for in.Scan() {
		o := new(order)
		if json.Unmarshal(in.Bytes(), o) == nil && o.Point != "" {
			select {
			case <-t.goOn: // of the order before, which ended a stop at no point
			default:
			}
			t.order.Store(o)
			continue
		}
		if pending := t.order.Swap(nil); in.Text() == cancel {
			if pending != nil { // otherwise the worker is at its point, and act writes that
				t.w.write(line{Op: opCanceled})
			}
			continue
		}
		select {
		case t.goOn <- struct{}{}:
		default: // it was stopped elsewhere
		}
	}
}

// reached acts if the order is for this point of key.
func (t *tripwire) reached(point, key string) {
	if o := t.order.Load(); o != nil && o.Point == point && strings.HasPrefix(key, o.Keys) && t.order.CompareAndSwap(o, nil) {
		t.act(o, key)
	}
}

// act writes the point to the journal, and then kills the process, or stops it until the test
// resumes it.
func (t *tripwire) act(o *order, key string) {
	sig := syscall.SIGKILL
	if o.Stop {
		sig = syscall.SIGSTOP
		if len(t.goOn) > 0 { // the test has stopped and resumed the process meanwhile, see slot.stop
			return
		}
	}
	t.w.write(line{Op: opPoint, Key: key, Text: o.Point})
	_ = syscall.Kill(os.Getpid(), sig)
	<-t.goOn // the signal may take a moment to reach this thread; the test says go on before it resumes the process
}

func (t *tripwire) dial(next redistest.Dialer) redistest.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wired{Conn: c, t: t}, nil
	}
}

// trip is an order that a command fulfills.
type trip struct {
	*order
	key      string
	answered bool // with the answer, not before the command is sent
}

// look returns the order if it is for this command. A script whose
// text has not passed yet has no name. Then look replaces its digest in the request by an unknown
// one, so that the client sends the text.
func (t *tripwire) look(request []byte) (due trip) {
	args := resp.Args(request)
	sha := t.names.Script(args)
	o := t.order.Load()
	if o == nil || sha == "" {
		return trip{}
	}
	name := t.names.Of(sha)
	if name == "" {
		copy(request[strings.Index(strings.ToLower(string(request)), sha):], strings.Repeat("0", len(sha)))
		return trip{}
	}
	script, when, _ := strings.Cut(o.Point, " ")
	_, key, found := strings.Cut(strings.Join(args[2:], "\n"), "{"+o.Keys)
	if script != name || !found || !t.order.CompareAndSwap(o, nil) {
		return trip{}
	}
	key, _, _ = strings.Cut(key, "}")
	return trip{o, o.Keys + key, when == "answered"}
}

// wired is a connection that looks at the requests.
type wired struct {
	net.Conn
	t    *tripwire
	mu   sync.Mutex
	rest []byte // of a request that is not complete
	due  trip   // with the next answer
}

func (c *wired) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	for {
		n, _, ok := resp.Split(c.rest)
		if !ok {
			return len(b), nil
		}
		if due := c.t.look(c.rest[:n]); due.answered {
			c.due = due
		} else if due.order != nil {
			c.t.act(due.order, due.key)
		}
		if _, err := c.Conn.Write(c.rest[:n]); err != nil {
			return 0, err
		}
		c.rest = c.rest[n:]
	}
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	due := c.due
	if n > 0 {
		c.due = trip{}
	}
	c.mu.Unlock()
	if due.order != nil && n > 0 {
		c.t.act(due.order, due.key)
	}
	return n, err
}
