//go:build unix

package fence_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	childEnv = "HOLDFAST_FENCE_CHILD" // address of the Redis; it makes this process the writer that is paused
	lease    = 3 * time.Second
)

// child acquires the key, prints that, and waits for a line on its standard input. Then it writes
// twice: without a fence, and through the fence.
func child() int {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(childEnv)})
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return 1
	}
	le, err := locks.Acquire(ctx, "account:42", lockcore.Terms{Lease: lease})
	if err != nil {
		return 1
	}
	h, err := fence.Of(le.Context(), "account:42")
	fmt.Println("held", err)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // the process is stopped here, between its check and its write
		return 1
	}
	plain := rdb.Set(ctx, "plain", "old", 0).Err()
	_, err = fence.Redis{Client: rdb}.Do(ctx, h, "fenced", "SET", "old")
	fmt.Println("plain:", plain, "fenced:", err)
	return 0
}

// A process is stopped between its check and its write for longer than its lease. Its late write
// replaces that of the next holder, except if the resource is fenced.
func TestPausedProcess(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+s.Addr())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "held <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stop(t, cmd.Process.Pid)
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	succeed(t, rdb)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line, err := said.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "plain: <nil> fenced: fence: token ") || !strings.Contains(line, "is stale") {
		t.Errorf("the paused process printed %q, %v", line, err)
	}
	if v := rdb.Get(t.Context(), "plain").Val(); v != "old" {
		t.Errorf("inconclusive: without a fence it is %q", v)
	}
	if v := rdb.Get(t.Context(), "fenced").Val(); v != "new" {
		t.Errorf("with a fence it is %q", v)
	}
}

// stop sends SIGSTOP and returns when the process has stopped, because it still runs for a moment
// after the signal.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var state syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &state, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || !state.Stopped():
			t.Fatalf("not stopped: %v, %v", state, err)
		default:
			return
		}
	}
}

// succeed waits until the lease of the paused process has expired, acquires the key, and writes.
func succeed(t *testing.T, rdb *redis.Client) {
	t.Helper()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	le, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Lease: lease, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = le.Release(context.Background()) }()
	h, err := fence.Of(le.Context(), "account:42")
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(t.Context(), "plain", "new", 0).Err(); err != nil {
		t.Error(err)
	}
	if _, err := (fence.Redis{Client: rdb}).Do(t.Context(), h, "fenced", "SET", "new"); err != nil {
		t.Error(err)
	}
}
