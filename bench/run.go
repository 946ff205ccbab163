package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const answerTime = 90 * time.Second // longest time of a child for one word

// crewOfChildren are the processes of one run. All of them begin each step at the same time.
type crewOfChildren []*child

// child is one process.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer
}

// runOnce measures one library at one point of a scenario. Its processes run program, or this one
// if it is empty.
func runOnce(ctx context.Context, srv *server, sc scenario, p point, library, program, prefix string, d time.Duration) (result, error) {
	path, err := newWitnessFile(p.Keys)
	if err != nil {
		return result{}, err
	}
	defer os.Remove(path)
	j := job{Library: library, program: program, Addr: srv.addr, Cluster: srv.clusterAddrs(), Prefix: prefix, Witness: path, Point: p}
	if program != "" {
		j.Library = holdfastName
	}
	children, err := startChildren(ctx, p.Procs, j)
	defer children.end()
	if err != nil {
		return result{}, err
	}
	outcomes, cpu, err := children.run(ctx, srv, p, sc.window(d), d)
	if err != nil {
		return result{}, fmt.Errorf("%s, %s: %w", strings.TrimSpace(sc.name+" "+p.Name), library, err)
	}
	return newResult(sc.name, p, library, outcomes, cpu), nil
}

// run leads the children through one measurement. cpu is the CPU time of the server.
func (cs crewOfChildren) run(ctx context.Context, srv *server, p point, window, d time.Duration) (os []*outcome, cpu time.Duration, err error) {
	if _, err = cs.all(ctx, warmUp); err != nil {
		return nil, 0, err
	}
	if p.Kind != holdKind && p.Kind != waitKind && p.Kind != faultKind { // the others are warm when they reply
		if err = sleep(ctx, p.warmTime(d)); err != nil {
			return nil, 0, err
		}
	}
	before, err := srv.cpu(ctx)
	if err != nil {
		return nil, 0, err
	}
	if _, err = cs.all(ctx, measure); err != nil {
		return nil, 0, err
	}
	if err = sleep(ctx, window); err != nil {
		return nil, 0, err
	}
	if after, err2 := srv.cpu(ctx); err2 == nil { // before finish, because the end of the run is not part of the measurement
		cpu = after - before
	}
	os, err = cs.all(ctx, finish)
	return os, cpu, err
}

// warmTime is how long workers work before anything counts. It also covers their first sections,
// which are cut short.
func (p point) warmTime(d time.Duration) time.Duration {
	return max(min(max(d/5, 100*time.Millisecond), time.Second), 3*p.Inside)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startChildren returns when all children are ready. If it fails, it returns the children that it
// has started, and an error.
func startChildren(ctx context.Context, n int, j job) (crewOfChildren, error) {
	var cs crewOfChildren
	for i := range n {
		j.Process = i
		c, err := startChild(ctx, j)
		if err != nil {
			return cs, err
		}
		cs = append(cs, c)
	}
	_, err := cs.all(ctx, "")
	return cs, err
}

func startChild(ctx context.Context, j job) (*child, error) {
	program := j.program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, answers: make(chan answer, 1)}
	go func() { // ends with the child, which closes its output
		defer close(c.answers)
		r := bufio.NewReader(out)
		for dec := json.NewDecoder(r); ; {
			var a answer
			if dec.Decode(&a) != nil {
				return
			}
			c.answers <- a
		}
	}()
	return c, json.NewEncoder(in).Encode(j)
}

func (cs crewOfChildren) all(ctx context.Context, word string) ([]*outcome, error) {
	return cs.allWithin(ctx, word, answerTime)
}

// allWithin sends one word to all children, so that they start at the same time. Then it waits for
// all their outcomes, for at most d.
func (cs crewOfChildren) allWithin(ctx context.Context, word string, d time.Duration) ([]*outcome, error) {
	for _, c := range cs {
		if word == "" {
			continue
		}
		if _, err := fmt.Fprintln(c.in, word); err != nil {
			return nil, fmt.Errorf("bench: a child has ended: %w", err)
		}
	}
	var outcomes []*outcome
	late := time.After(d)
	for _, c := range cs {
		select {
		case a, ok := <-c.answers:
			switch {
			case !ok:
				return nil, errors.New("bench: a child has ended")
			case a.Error != "":
				return nil, errors.New(a.Error)
			}
			outcomes = append(outcomes, a.Outcome)
		case <-late:
			return nil, fmt.Errorf("bench: a child does not reply to %q", word)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return outcomes, nil
}

// end kills the children, including those that hang.
func (cs crewOfChildren) end() {
	for _, c := range cs {
		_ = c.in.Close()
		_ = c.cmd.Process.Kill()
		for range c.answers { // Wait must not close the pipe before the reader has ended
		}
		_ = c.cmd.Wait()
	}
}
