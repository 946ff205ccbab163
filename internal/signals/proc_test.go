package signals_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
)

// proc is a worker as the test sees it, and the register that it works on.
type proc struct {
	*chaos.Process
	said chan message // all but reads, writes and faults; closed when the worker has ended
}

func start(t *testing.T, task task, reg *chaos.Register) *proc {
	t.Helper()
	p := &proc{said: make(chan message, 100)}
	p.Process = chaos.Start(t, task, func(c *chaos.Process, m message) {
		switch m.Op {
		case opRead:
			c.Tell(fmt.Sprint(reg.Value()))
		case opWrite:
			answer := "refused"
			if reg.Write(m.Token, "worker", m.Value) {
				answer = "taken"
			}
			c.Tell(answer)
		case opFault:
			t.Errorf("worker of %s at %q: %s", task.Key, task.Point, m.Text)
		default:
			p.said <- m
		}
	})
	go func() {
		<-p.Ended
		close(p.said)
	}()
	return p
}

var errGone = errors.New("the worker has ended, or says nothing")

// await waits until the worker sends one of ops.
func (p *proc) await(ops ...string) (message, error) {
	bound := time.NewTimer(patience)
	defer bound.Stop()
	for {
		select {
		case m, ok := <-p.said:
			if !ok {
				return m, errGone
			}
			if slices.Contains(ops, m.Op) {
				return m, nil
			}
		case <-bound.C:
			return message{}, errGone
		}
	}
}

// pause waits for d, and then resumes a worker that has stopped itself.
func (p *proc) pause(d time.Duration) {
	time.Sleep(d) // that is the pause
	p.Tell("go on")
	p.Resume()
}
