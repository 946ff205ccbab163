//go:build unix

// Package process starts a second process of a test binary, stops it, resumes it and kills it. The
// process reads lines from its standard input and writes lines of JSON.
package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const workerEnv = "HOLDFAST_TEST_PROCESS"

// Work runs work and exits if [Start] started this process. It returns in the process of the tests.
// work gets the task of Start, and in has the lines of Tell.
func Work[T any](work func(task T, in *bufio.Scanner) error) {
	if os.Getenv(workerEnv) == "" {
		return
	}
	in, task := bufio.NewScanner(os.Stdin), *new(T)
	in.Scan()
	err := json.Unmarshal(in.Bytes(), &task)
	if err == nil {
		err = work(task, in)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Main is the TestMain of a package with workers, see [Work].
func Main[T any](m *testing.M, work func(task T, in *bufio.Scanner) error, ignore ...goleak.Option) {
	Work(work)
	goleak.VerifyTestMain(m, ignore...)
}

// Process is a worker of a test.
type Process struct {
	Ended chan struct{} // closed when the process has ended, and was reaped
	Err   error         // how it ended, valid after Ended

	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
}

// Start starts a process that gets task, see [Work], and writes to out. The process is killed at
// the end of the test. The test fails if its exit code is not 0.
func Start(tb testing.TB, task any, out *os.File) *Process {
	tb.Helper()
	p := &Process{Ended: make(chan struct{}), tb: tb, cmd: exec.CommandContext(tb.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), workerEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.cmd.Stdout, p.cmd.Stderr = out, os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err == nil {
		err = json.NewEncoder(p.in).Encode(task)
	}
	if err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.Ended)
		p.Err = p.cmd.Wait()
		if p.cmd.ProcessState.ExitCode() > 0 {
			tb.Errorf("process %d: %v", p.PID(), p.Err)
		}
	}()
	tb.Cleanup(p.Kill)
	return p
}

// Listen is Start with a channel for the lines that the process writes, see [WriteLine]. The channel
// is closed when the process has ended.
func Listen[T any](tb testing.TB, task any) (*Process, <-chan T) {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	p, said := Start(tb, task, w), make(chan T, 100)
	_ = w.Close() // the process has its own copy
	go func() {
		defer close(said)
		defer func() { <-p.Ended }()
		defer func() { _ = r.Close() }()
		if err := ReadLines(r, func(line T) { said <- line }); err != nil {
			tb.Errorf("process %d: %v", p.PID(), err)
		}
	}()
	return p, said
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tell writes a line to the standard input of the process. It has no effect if the process has
// ended.
func (p *Process) Tell(line string) { _, _ = io.WriteString(p.in, line+"\n") }

// Close closes the standard input of the process.
func (p *Process) Close() { _ = p.in.Close() }

// Kill kills the process, even if it is stopped, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.Ended
}

// Pause stops the process with SIGSTOP. It returns when the process has stopped: for a moment after
// the signal its threads still run.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	var state syscall.WaitStatus
	_, err := syscall.Wait4(p.PID(), &state, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.PID(), &state, syscall.WUNTRACED, nil)
	}
	if err != nil || !state.Stopped() {
		p.tb.Errorf("process %d is not stopped: %v, %v", p.PID(), state, err)
	}
}

// Resume ends a Pause.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Errorf("process %d: %v: %v", p.PID(), s, err)
	}
}

// Killed reports whether a signal ended the process. It is valid after Ended.
func (p *Process) Killed() bool { return !p.cmd.ProcessState.Exited() }

// WriteLine writes v as a line of JSON with a single write. So the line is complete whatever
// happens to the process afterwards, and lines of several goroutines or processes do not mix.
// WriteLine panics if it fails, because a test must not miss a line.
func WriteLine(f *os.File, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// ReadLines calls hear with each line of WriteLine. A last line that a kill has cut off is not an
// error.
func ReadLines[T any](r io.Reader, hear func(T)) error {
	for lines := json.NewDecoder(r); ; {
		var line T
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		hear(line)
	}
}

// Now is the clock of the machine, which all processes share.
func Now() int64 { return time.Now().UnixNano() }
