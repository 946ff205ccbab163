package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// childEnv is an environment variable. If it is set, this program or its test binary runs as a
// child and ignores its arguments.
const childEnv = "HOLDFAST_BENCH_CHILD"

// task is the work of a child. Each method is called once, in the order below. When collect
// returns, some goroutines may still hang in their library; they end with the process.
type task interface {
	warmUp() error
	open()  // the window opens
	close() // the window closes
	collect(*outcome)
}

// childMain executes the words that the parent sends, see job.go. It returns when it has sent the
// outcome. The process also ends when the parent ends.
func childMain(in io.Reader, out io.Writer) int {
	lines := readLines(in)
	enc := json.NewEncoder(out)
	var j job
	if err := json.Unmarshal([]byte(<-lines), &j); err != nil {
		return 1
	}
	sent := new(wire.Counter)
	w, err := newTask(j, sent)
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
			err = w.warmUp()
		case measure:
			meter.start()
			w.open()
		case giveBack:
			if m, ok := w.(*memoryTask); ok {
				err = m.giveBack()
			}
		case finish:
			w.close()
			o := meter.stop()
			w.collect(&o)
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
	if j.Point.Kind == faultKind {
		return newFaultTask(j)
	}
	lib, ok := libraryNamed(j.Library)
	if !ok {
		return nil, fmt.Errorf("bench: no library %q", j.Library)
	}
	s := setup{addr: j.Addr, cluster: j.Cluster, wire: sent, lease: j.Point.Lease, limit: j.Point.Limit}
	if j.Point.Kind == holdKind {
		s.passes = &passes{}
	}
	l, err := lib.open(s)
	if err != nil {
		return nil, err
	}
	if j.Point.Kind == memoryKind { // each key has one caller, so no witness is needed
		return &memoryTask{holdTask{job: j, locker: l}}, nil
	}
	seen, err := openWitness(j.Witness)
	if err != nil {
		return nil, err
	}
	switch j.Point.Kind {
	case lockKind:
		return newLockCrew(j, l, seen), nil
	case holdKind:
		return &holdTask{job: j, locker: l, witness: seen, passes: s.passes}, nil
	case waitKind:
		return &waitTask{job: j, locker: l}, nil
	case httpKind:
		h, err := newHandler(j, l)
		if err != nil {
			return nil, err
		}
		return newHTTPCrew(j, h, seen)
	case hotKind:
		if own, ok := l.(*holdfastLocker); ok {
			return newHotTask(j, own, seen), nil
		}
	case rwKind:
		if own, ok := l.(*holdfastLocker); ok {
			return newRWTask(j, own, seen), nil
		}
	case anyKind:
		if own, ok := l.(*holdfastLocker); ok {
			return newAnyCrew(j, own, seen), nil
		}
	case reentryKind, onceKind:
		own, ok := l.(*holdfastLocker)
		if !ok {
			break
		}
		if j.Point.Kind == onceKind {
			return newOnceCrew(j, own, seen), nil
		}
		return newReentryCrew(j, own, seen)
	case faultKind, memoryKind: // handled above
	}
	return nil, fmt.Errorf("bench: no task %q for %s", j.Point.Kind, j.Library)
}

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
	return outcome{
		Window: window, CPU: o.CPU - m.base.CPU, Mallocs: o.Mallocs - m.base.Mallocs,
		Commands: o.Commands - m.base.Commands, Trips: o.Trips - m.base.Trips, Extra: figures{},
	}
}

func (m *meter) read() outcome {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use) // fails only for a bad argument
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return outcome{
		CPU:     time.Duration(use.Utime.Nano() + use.Stime.Nano()),
		Mallocs: int64(mem.Mallocs), Commands: m.sent.Commands.Load(), Trips: m.sent.Trips.Load(),
	}
}
