package signals_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// proc is a worker as the test sees it.
type proc struct {
	t     *testing.T
	task  task
	cmd   *exec.Cmd
	in    io.WriteCloser
	reg   *register
	said  chan message  // but reads and writes
	ended chan struct{} // closed when it is gone
	died  int64         // then: when that was
}

func start(t *testing.T, task task, reg *register) *proc {
	t.Helper()
	p := &proc{t: t, task: task, reg: reg, said: make(chan message, 100), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0])
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), workerEnv+"=1"), os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err == nil {
		err = json.NewEncoder(p.in).Encode(task)
	}
	if err != nil {
		t.Fatal(err)
	}
	go p.listen(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // also if it is stopped
		<-p.ended
	})
	return p
}

// listen answers the worker and passes on what else it says. It ends with the process.
func (p *proc) listen(out io.Reader) {
	defer close(p.ended)
	defer close(p.said)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			p.t.Errorf("%v: %q", err, lines.Text())
			continue
		}
		switch m.Op {
		case opRead:
			p.tell(fmt.Sprint(p.reg.read()))
		case opWrite:
			answer := "refused"
			if p.reg.write(m.Token, "worker", m.Value) {
				answer = "taken"
			}
			p.tell(answer)
		case opFault:
			p.t.Errorf("worker of %s at %q: %s", p.task.Key, p.task.Point, m.Text)
		default:
			p.said <- m
		}
	}
	p.died = now()
	_ = p.cmd.Wait()
}

func (p *proc) tell(line string) { _, _ = io.WriteString(p.in, line+"\n") }

var errGone = errors.New("the worker is gone, or says nothing")

// await waits until the worker says one of ops.
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

// pause keeps a worker that has stopped itself from going on for d.
func (p *proc) pause(d time.Duration) {
	time.Sleep(d) // that is the pause
	p.tell("go on")
	p.signal(syscall.SIGCONT)
}

func (p *proc) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("%v: %v", s, err)
	}
}
