package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/hotkey"
	"github.com/holdfast-go/holdfast/bench/internal/wire"
	"github.com/holdfast-go/holdfast/bench/kills"
)

// childEnv is an environment variable. If it is set, this program or its test binary runs as a
// child and ignores its arguments.
const childEnv = "HOLDFAST_BENCH_CHILD"

// task is the work of a child. Each method is called once, in the order below. When collect
// returns, some goroutines may still hang in their library; they end with the process.
type task interface {
	warmUp() error
	open() error // the window opens
	close()      // the window closes
	collect(*outcome)
}

// childMain executes the words that the parent sends, see job.go. It returns when it has sent the
// outcome. The process also ends when the parent ends.
func childMain(in io.Reader, out io.Writer) int {
	if text := os.Getenv(kills.Env); text != "" {
		if err := kills.Child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	lines := readLines(in)
	enc := json.NewEncoder(out)
	var j job
	if err := json.Unmarshal([]byte(<-lines), &j); err != nil {
		return 1
	}
	sent := new(wire.Counter)
	t, err := newTask(j, sent)
	meter := meter{sent: sent}
	for {
		a := answer{}
		if err != nil {
			a.Error = err.Error()
		}
		if enc.Encode(a) != nil || err != nil {
			return 1
		}
		switch line := <-lines; line {
		case warmUp:
			err = t.warmUp()
		case measure:
			meter.start()
			err = t.open()
		case giveBack:
			if m, ok := t.(*memoryTask); ok {
				err = m.giveBack()
			}
		case finish:
			t.close()
			o := meter.stop()
			t.collect(&o)
			if enc.Encode(answer{Outcome: &o}) != nil {
				return 1
			}
			return 0
		default:
			err = fmt.Errorf("bench: unknown word %q", line)
		}
	}
}

// readLines returns the lines of in. It ends the process when in ends, which happens even if the
// parent is killed.
func readLines(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		for sc := bufio.NewScanner(in); sc.Scan(); {
			lines <- sc.Text()
		}
		os.Exit(1)
	}()
	return lines
}

func newTask(j job, sent *wire.Counter) (task, error) {
	p := j.Point
	s := setup{addr: j.Addr, cluster: j.Nodes, dial: far(sent.Dial, p.Trip), lease: p.Lease, limit: p.Limit, rate: p.Rate, failFast: j.Library == failFastName}
	if p.Masters > 0 {
		s.cluster, s.masters = nil, j.Nodes
	}
	if p.Kind == faultKind {
		return newFaultTask(j)
	}
	if p.Kind == asynqKind {
		w, err := hotkey.NewWorker(j.Library, j.Queue, newClient(s), p.Load)
		return asynqTask{w}, err
	}
	l, ok := libraryNamed(j.Library)
	if !ok {
		return nil, fmt.Errorf("bench: no library %q", j.Library)
	}
	opened, err := l.open(s)
	if err != nil {
		return nil, err
	}
	if p.Kind == memoryKind { // each key has one caller, so no witness is needed
		return &memoryTask{job: j, locker: opened}, nil
	}
	if p.Kind == waitKind {
		return &waitTask{job: j, locker: opened}, nil
	}
	seen, err := openWitness(j.Witness)
	if err != nil {
		return nil, err
	}
	if own, ok := opened.(*holdfastLocker); ok && p.Kind == httpKind {
		return newHotTask(j, own, seen), nil
	}
	return newLockCrew(j, opened, seen), nil
}

// asynqTask serves the queue from open on.
type asynqTask struct{ worker *hotkey.Worker }

func (asynqTask) warmUp() error        { return nil }
func (t asynqTask) open() error        { return t.worker.Start() }
func (asynqTask) close()               {}
func (t asynqTask) collect(o *outcome) { o.Tasks = t.worker.Tally() }

// meter measures the resources that this process uses.
type meter struct {
	sent  *wire.Counter
	began time.Time
	base  outcome
}

func (m *meter) start() { m.base, m.began = m.read(), time.Now() }

func (m *meter) stop() outcome {
	window := time.Since(m.began)
	o := m.read()
	return outcome{Window: window, CPU: o.CPU - m.base.CPU, Commands: o.Commands - m.base.Commands, Extra: figures{}}
}

func (m *meter) read() outcome {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use) // fails only for a bad argument
	return outcome{CPU: time.Duration(use.Utime.Nano() + use.Stime.Nano()), Commands: m.sent.Commands.Load()}
}
