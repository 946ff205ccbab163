//go:build unix

package chaos_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
)

// The worker of these tests writes each line that it reads, and fails at the end if its task is
// "fail".
func TestMain(m *testing.M) {
	chaos.Main(m, func(task string, in *bufio.Scanner) error {
		for in.Scan() {
			chaos.WriteLine(os.Stdout, in.Text())
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
	p, said := chaos.Listen[string](t, "echo")
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
	p, _ := chaos.Listen[string](e, "echo")
	p.Pause()
	p.Kill()
	if !p.Killed() || p.Err == nil || len(e.all) > 0 {
		t.Errorf("killed: %v, %q", p.Err, e.all)
	}
	p, _ = chaos.Listen[string](e, "fail")
	p.Close()
	<-p.Ended
	if p.Killed() || p.Err == nil || len(e.all) != 1 {
		t.Errorf("failed: %v, %q", p.Err, e.all)
	}
}

// A Register refuses late holds. It notices when two holds increment the value of one read.
func TestRegister(t *testing.T) {
	var r chaos.Register
	add := func(token int64, by string, value int64, ok bool) {
		t.Helper()
		if r.Write(token, by, value) != ok {
			t.Errorf("write of %s under %d: accepted %v", by, token, !ok)
		}
	}
	add(5, "a", 1, true)
	add(5, "a", 2, true)
	add(5, "b", 3, false) // another hold with the same token
	if _, ok := r.Read(7, "c"); !ok {
		t.Error("a read under a greater token is refused")
	}
	add(6, "b", 3, false) // late: c has read
	add(5, "a", 3, false)
	add(7, "c", 3, true)
	if accepted, refused, overlaps := r.Counts(); accepted != 3 || refused != 3 || overlaps != 1 || r.Check() != nil {
		t.Errorf("%d accepted, %d refused, %d overlaps, %v", accepted, refused, overlaps, r.Check())
	}
	add(8, "d", r.Value(), true) // d has read before c wrote
	if r.Check() == nil {
		t.Error("a lost increment is not noticed")
	}
}
