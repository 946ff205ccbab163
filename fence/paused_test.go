//go:build unix

package fence_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const lease = 3 * time.Second

// child is the writer that is paused, on the Redis at addr. It acquires the key, prints that, and
// waits for a line on its standard input. Then it writes twice: without a fence, and through the
// fence.
func child(addr string, in *bufio.Scanner) error {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return err
	}
	le, err := locks.Acquire(ctx, "account:42", lockcore.Terms{Lease: lease})
	if err != nil {
		return err
	}
	h, err := fence.Of(le.Context(), "account:42")
	if err != nil {
		return err
	}
	process.WriteLine(os.Stdout, "held")
	in.Scan() // here it is stopped, between its check and its write
	plain := rdb.Set(ctx, "plain", "old", 0).Err()
	_, err = fence.Redis{Client: rdb}.Do(ctx, h, "fenced", "SET", "old")
	process.WriteLine(os.Stdout, fmt.Sprint("plain: ", plain, " fenced: ", err))
	return nil
}

// A process is stopped between its check and its write for longer than its lease. Its late write
// replaces that of the next holder, except if the resource is fenced.
// Shows: P5, F2
func TestPausedProcess(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	p, said := process.Listen[string](t, s.Addr())
	if line := <-said; line != "held" {
		t.Fatalf("the process said %q", line)
	}
	p.Pause()
	p.Tell("go")
	succeed(t, rdb)
	p.Resume()
	if line := <-said; !strings.HasPrefix(line, "plain: <nil> fenced: fence: token ") || !strings.Contains(line, "is stale") {
		t.Errorf("the paused process said %q", line)
	}
	if v := rdb.Get(t.Context(), "plain").Val(); v != "old" {
		t.Errorf("inconclusive: without a fence it is %q", v)
	}
	if v := rdb.Get(t.Context(), "fenced").Val(); v != "new" {
		t.Errorf("with a fence it is %q", v)
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
