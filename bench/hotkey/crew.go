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
	"slices"
	"strings"
	"sync"
	"time"
)

// record is an event, and the worker process that reported it.
type record struct {
	event
	process int
}

// crew has the worker processes of a run, and the events that they reported.
type crew struct {
	order order

	mu      sync.Mutex
	started int
	records []record
	counts  map[op]int
	ended   map[string]bool // the tasks of the load, without the backlog, that have ended
	backlog int             // runs of tasks of the backlog that have ended
}

func newCrew(o order) *crew {
	return &crew{order: o, counts: map[op]int{}, ended: map[string]bool{}}
}

// process is a worker process.
type process struct {
	id   int
	cmd  *exec.Cmd
	in   io.WriteCloser
	read chan struct{} // closed when all its events have been recorded
}

// start starts a worker process. The process ends when ctx ends, at kill, or when this process
// ends.
func (c *crew) start(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), workerEnv+"=1"), os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	p := &process{id: c.started, cmd: cmd, in: in, read: make(chan struct{})}
	c.started++
	c.mu.Unlock()
	go func() { // ends with the process, which closes its output
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				c.add(record{e, p.id})
			}
		}
	}()
	return p, json.NewEncoder(in).Encode(c.order)
}

func (c *crew) add(r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
	c.counts[r.Op]++
	switch {
	case r.Op != opEnded:
	case strings.HasPrefix(r.Account, "backlog"):
		c.backlog++
	default:
		c.ended[r.Task] = true
	}
}

// until polls done, under the mutex, until it returns true, ctx ends or d is over. It returns the
// last result of done.
func (c *crew) until(ctx context.Context, d time.Duration, done func() bool) bool {
	for late := time.Now().Add(d); ; time.Sleep(2 * time.Millisecond) {
		c.mu.Lock()
		ok := done()
		c.mu.Unlock()
		if ok || ctx.Err() != nil || time.Now().After(late) {
			return ok
		}
	}
}

// told returns all records, ordered by time.
func (c *crew) told() []record {
	c.mu.Lock()
	defer c.mu.Unlock()
	rs := slices.Clone(c.records)
	slices.SortStableFunc(rs, func(a, b record) int { return int(a.At - b.At) })
	return rs
}

func (p *process) say(word string) error {
	_, err := fmt.Fprintln(p.in, word)
	return err
}

// kill kills the process and returns when all its events have been recorded.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.read                 // Wait must not close the pipe before the reader has ended
	_ = p.cmd.Wait()
}
