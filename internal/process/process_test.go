//go:build unix

package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/process"
)

// The worker of these tests writes each line that it reads, and fails at the end if its task is
// "fail".
func TestMain(m *testing.M) {
	process.Main(m, func(task string, in *bufio.Scanner) error {
		for in.Scan() {
			process.WriteLine(os.Stdout, in.Text())
		}
		if task == "fail" {
			return errors.New("as it was told")
		}
		return nil
	})
}

// errs is a test that keeps its errors.
type errs struct {
	testing.TB
	mu  sync.Mutex
	all []string
}

func (e *errs) Errorf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(format, args...))
}

// A stopped process writes nothing until it is resumed. The channel of a process is closed at its
// end.
func TestProcess(t *testing.T) {
	p, said := process.Listen[string](t, "echo")
	p.Pause()
	p.Tell("a")
	select {
	case line := <-said:
		t.Errorf("%q of a stopped process", line)
	case <-time.After(50 * time.Millisecond):
	}
	p.Resume()
	if line := <-said; line != "a" {
		t.Errorf("got %q", line)
	}
	p.Close()
	if line, more := <-said; more || p.Err != nil || p.Killed() {
		t.Errorf("at the end: %q, %v", line, p.Err)
	}
}

// A process that the test kills does not fail the test, even if it is stopped. A process that exits
// with an error does.
func TestProcessEnds(t *testing.T) {
	e := &errs{TB: t}
	p, _ := process.Listen[string](e, "echo")
	p.Pause()
	p.Kill()
	if !p.Killed() || p.Err == nil || len(e.all) > 0 {
		t.Errorf("killed: %v, %q", p.Err, e.all)
	}
	p, _ = process.Listen[string](e, "fail")
	p.Close()
	<-p.Ended
	if p.Killed() || p.Err == nil || len(e.all) != 1 {
		t.Errorf("failed: %v, %q", p.Err, e.all)
	}
}
