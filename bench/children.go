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
	"time"
)

const answerTime = 90 * time.Second // longest time of a child for one word

// children are the processes of one run. All of them begin each step at the same time.
type children []*child

// child is one process.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer
}

// startChildren returns when all children are ready. If it fails, it returns the children that it
// has started, and an error.
func startChildren(ctx context.Context, n int, j job) (cs children, err error) {
	for i := range n {
		j.Process = i
		c, err := startChild(ctx, j)
		if err != nil {
			return cs, err
		}
		cs = append(cs, c)
	}
	_, err = cs.all(ctx, "", answerTime)
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
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, answers: make(chan answer, 1)}
	go func() { // ends with the child, which closes its output
		defer close(c.answers)
		for dec := json.NewDecoder(bufio.NewReader(out)); ; {
			var a answer
			if dec.Decode(&a) != nil {
				return
			}
			c.answers <- a
		}
	}()
	return c, json.NewEncoder(in).Encode(j)
}

// all sends one word to all children, so that they start at the same time. Then it waits for all
// their outcomes, for at most d.
func (cs children) all(ctx context.Context, word string, d time.Duration) (outcomes []*outcome, err error) {
	for _, c := range cs {
		if word == "" {
			continue
		}
		if _, err := fmt.Fprintln(c.in, word); err != nil {
			return nil, fmt.Errorf("bench: a child has ended: %w", err)
		}
	}
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
func (cs children) end() {
	for _, c := range cs {
		_ = c.in.Close()
		_ = c.cmd.Process.Kill()
		for range c.answers { // Wait must not close the pipe before the reader has ended
		}
		_ = c.cmd.Wait()
	}
}
