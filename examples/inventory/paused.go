//go:build unix

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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/lockcore"
)

// pausedEnv is the environment variable that makes the program the buyer that is paused.
const pausedEnv = "HOLDFAST_INVENTORY_PAUSED"

// pausedBuyer is what the child process needs to know.
type pausedBuyer struct {
	Strategy, DSN, Redis, Prefix string
	Dialect                      fence.SQL
	User                         int
}

const (
	pausedLease = time.Second
	linePaused  = "paused"
	lineStale   = "stale"
)

// start starts a process that buys. It returns when that process holds the key and is stopped by
// SIGSTOP, like a process on an overloaded machine. resume continues the process, and reports
// whether the fence refused its write. The buyer also waits for a line on its standard input,
// because its threads run for a few milliseconds after SIGSTOP and could write.
func (b pausedBuyer) start(ctx context.Context) (resume func() (stale bool, err error), err error) {
	args, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), pausedEnv+"="+string(args))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != linePaused {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("the buyer that is paused: %w", errors.Join(errors.New("it did not pause"), cmd.Wait()))
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func() (stale bool, err error) {
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return false, err
		}
		if _, err := fmt.Fprintln(in); err != nil {
			return false, err
		}
		rest, _ := io.ReadAll(out)
		return string(rest) == lineStale, cmd.Wait()
	}, nil
}

// buyPaused is the child process.
func buyPaused(ctx context.Context, args string, stdin io.Reader, stdout io.Writer) error {
	var b pausedBuyer
	if err := json.Unmarshal([]byte(args), &b); err != nil {
		return err
	}
	d, err := connect(b.Dialect, b.DSN)
	if err != nil {
		return err
	}
	defer d.db.Close()
	rdb := redis.NewClient(&redis.Options{Addr: b.Redis})
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: b.Prefix, Terms: lockcore.Terms{Lease: pausedLease}})
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close(ctx) }() // the lease was lost
	s := &shop{database: d, rdb: rdb, locks: locks, paused: func() {
		fmt.Fprintln(stdout, linePaused)
		_, _ = bufio.NewReader(stdin).ReadString('\n')
	}}
	i := slices.IndexFunc(strategies, func(t strategy) bool { return t.name == b.Strategy })
	err = strategies[i].buy(ctx, s, b.User)
	switch {
	case errors.Is(err, fence.ErrStale):
		fmt.Fprint(stdout, lineStale)
	case err != nil && !errors.Is(err, lockcore.ErrLost):
		return err
	}
	return nil
}
