package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/bench/hotkey"
	"github.com/holdfast-go/holdfast/bench/kills"
)

// run measures one cell of s on srv, with a new prefix for its keys. Its processes run program, or
// this one if it is empty.
func run(ctx context.Context, srv *server, s scenario, c cell, o options) (r result, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, %s: %w", r.where(), c.library, err)
		}
	}()
	r = result{scenario: s.name, point: c.point.Name, library: c.library}
	if c.point.Masters > 0 {
		srv = srv.first(c.point.Masters)
	}
	j := job{
		Library: c.library, Addr: srv.addr, Nodes: srv.nodeAddrs(), Point: c.point,
		Prefix: fmt.Sprintf("bench:%d:%s:", time.Now().UnixNano(), s.name),
	}
	if c.point.Kind == memoryKind && srv.own {
		j.Prefix = "account:" // as in a typical program
	}
	if c.point.Kind == killKind {
		err = r.runKills(ctx, c)
		return r, err
	}
	if c.library == beforeName {
		j.Library, j.program = holdfastName, o.before
	}
	if c.point.Kind != faultKind { // its runs share the server
		if err := srv.clean(ctx); err != nil {
			return r, err
		}
	}
	if c.point.Kind == asynqKind {
		err = r.runTasks(ctx, j)
		return r, err
	}
	if j.Witness, err = newWitnessFile(c.point.Keys); err != nil {
		return r, err
	}
	defer os.Remove(j.Witness)
	children, err := startChildren(ctx, c.point.Procs, j)
	defer children.end()
	if err != nil {
		return r, err
	}
	if c.point.Kind == memoryKind {
		err = r.runMemory(ctx, srv, children, c.point)
		return r, err
	}
	outcomes, cpu, err := children.measured(ctx, srv, c.point, s.window(o))
	if err == nil {
		r.sumUp(c.point, outcomes, cpu)
	}
	return r, err
}

// measured leads the children through one measurement. cpu is the CPU time of the server.
func (cs children) measured(ctx context.Context, srv *server, p point, window time.Duration) (os []*outcome, cpu time.Duration, err error) {
	if _, err = cs.all(ctx, warmUp, answerTime); err != nil {
		return nil, 0, err
	}
	if p.Kind == lockKind || p.Kind == quorumKind || p.Kind == rateKind || p.Kind == httpKind { // the others are warm when they reply
		if err = sleep(ctx, p.warmTime(window)); err != nil {
			return nil, 0, err
		}
	}
	before, err := srv.cpu(ctx)
	if err != nil {
		return nil, 0, err
	}
	if _, err = cs.all(ctx, measure, answerTime); err != nil {
		return nil, 0, err
	}
	if err = sleep(ctx, window); err != nil {
		return nil, 0, err
	}
	if after, err2 := srv.cpu(ctx); err2 == nil { // before finish, because the end of the run is not part of the measurement
		cpu = after - before
	}
	os, err = cs.all(ctx, finish, answerTime)
	return os, cpu, err
}

// warmTime is how long workers work before anything counts. It also covers their first sections,
// which are cut short.
func (p point) warmTime(window time.Duration) time.Duration {
	return max(min(max(window/5, 100*time.Millisecond), time.Second), 3*p.Inside)
}

// runTasks runs a load of asynq tasks. The queue has a redis-server of its own, so that its commands
// do not slow the locks.
func (r *result) runTasks(ctx context.Context, j job) error {
	queued, err := startServer(ctx, "")
	if err != nil {
		return err
	}
	defer queued.close()
	j.Queue = queued.addr
	queue, err := hotkey.NewQueue(ctx, queued.addr, j.Point.Load)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	children, err := startChildren(ctx, j.Point.Procs, j)
	defer children.end()
	if err != nil {
		return err
	}
	start := time.Now()
	if _, err := children.all(ctx, measure, answerTime); err != nil {
		return err
	}
	left, failed, err1 := queue.Await(ctx)
	outcomes, err2 := children.all(ctx, finish, answerTime)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var tallies []hotkey.Tally
	var sent int64
	for _, o := range outcomes {
		tallies = append(tallies, o.Tasks)
		sent += o.Commands
	}
	res := hotkey.Judge(tallies, start)
	r.figures = figures{
		notCompleted: float64(left), archived: float64(failed), violations: float64(res.Overlaps),
		deliveries: float64(res.Deliveries) / hotkey.HotTasks, commandsPerHot: float64(sent) / hotkey.HotTasks,
	}
	if j.Library == hotkey.None {
		r.figures[violations] = 0 // its runs may overlap
	}
	if j.Point.Load.Backlog > 0 {
		r.figures[backlogDone] = float64(res.Backlog)
	}
	if res.HotDone > 0 {
		r.figures[hotDone] = res.HotDone.Seconds()
	}
	if res.OthersDone > 0 {
		r.figures[othersDone] = res.OthersDone.Seconds()
	}
	return nil
}

// runKills kills workers of a queue, which has a redis-server of its own.
func (r *result) runKills(ctx context.Context, c cell) error {
	srv, err := startServer(ctx, "")
	if err != nil {
		return err
	}
	defer srv.close()
	t, err := kills.Run(ctx, c.library, srv.admin, childEnv+"=1", c.point.Kills)
	r.figures = figures{
		killCount: float64(t.Kills), runsKilled: float64(t.Cut), triggerCount: float64(t.Triggers), runCount: float64(t.Runs),
		lostTriggers: float64(t.Lost), staleRuns: float64(t.Stale), sideBySide: float64(t.Together), strayKeys: float64(t.Stray),
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
