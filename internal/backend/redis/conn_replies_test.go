package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Redis sends an error instead of the expected reply. Nothing is granted, nothing panics, and the
// error that the call returns contains the text. An error that does not pass is returned at once;
// any other is retried until the end of Wait.
// Shows: I11
func TestConnErrorReplies(t *testing.T) {
	for reply, atOnce := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                  false,
		"READONLY You can't write against a read only replica.":                           false,
		"CLUSTERDOWN The cluster is down":                                                 false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                         false,
		"MOVED 3999 127.0.0.1:6381":                                                       false,
		"ASK 3999 127.0.0.1:6381":                                                         false,
		"OOM command not allowed when used memory > 'maxmemory'.":                         false,
		"MISCONF Errors writing to the AOF file: No space left on device":                 false,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'": false,
		"NOREPLICAS Not enough good replicas to write.":                                   false,
		"BUSY Redis is busy running a script.":                                            false,
		"ERR max number of clients reached":                                               false,
		"NOSCRIPT No matching script.":                                                    false,
		"ERR Error running script (call to f_1): @user_script:25: -READONLY You can't write against a read only replica.": false,
		"ERR Error running script (call to f_1): @user_script:25: -OOM command not allowed":                               false,
		"": false,
		"ERR Error running script (call to f_1): @user_script:25: bad":                    true,
		"ERR user_script:25: attempt to index a nil value script: 1, on @user_script:25.": true,
		"ERR unknown command 'EVALSHA', with args beginning with: ":                       true,
		"NOPERM User default has no permissions to run the 'evalsha' command":             true,
		"ERR ACL failure in script: No permissions to access a key":                       true,
		"ERR The user executing the script can't run this command or subcommand":          true,
		"NOAUTH Authentication required.":                                                 true,
		"WRONGPASS invalid username-password pair or user is disabled.":                   true,
		"WRONGTYPE Operation against a key holding the wrong kind of value":               true,
	} {
		name, _, _ := strings.Cut(reply, " ")
		t.Run(name, func(t *testing.T) {
			for _, wrapped := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { verdict(t, wrapped, reply, atOnce) })
			}
		})
	}
}

func verdict(t *testing.T, wrapped bool, reply string, atOnce bool) {
	t.Helper()
	// go-redis sleeps between its own retries while it holds the mutex of a subscription. In a
	// bubble that sleep never ends.
	l, _, m := away(t, wrapped, func(o *redis.Options) { o.MaxRetries = -1 })
	held, err := l.Acquire(t.Context(), "held", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	if reply == "" { // an error with an empty text
		reply = " "
	}
	m.Redis.SetError(reply)
	want := lockcore.ErrUnavailable
	if strings.HasPrefix(reply, "WRONGTYPE") {
		want = lockcore.ErrRecord
	}
	for name, call := range calls {
		start := time.Now()
		err := call(t.Context(), l, lockcore.Terms{Wait: 3 * time.Second})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), strings.TrimSpace(reply)) {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(start); (name == "Acquire" || name == "Claim") && (d < 2*time.Second) != atOnce || d > 3500*time.Millisecond {
			t.Errorf("%s after %v: %v", name, d, err)
		}
	}
	if err := held.Extend(t.Context(), time.Minute); !errors.Is(err, want) {
		t.Errorf("Extend: %v", err)
	}
	time.Sleep(5 * time.Second) // renewals fail, but the lease is still valid
	m.Redis.SetError("")
	time.Sleep(time.Minute)
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("the errors have ended, but Release returned %v", err)
	}
}

// A key of another type is not changed, and a reply of another shape is no grant.
func TestConnStranger(t *testing.T) {
	for where, newClient := range map[string]func(t *testing.T) *redis.Client{
		"memory": func(t *testing.T) *redis.Client { t.Helper(); return redistest.Bubble(t).Client(t) },
		"real":   func(t *testing.T) *redis.Client { t.Helper(); return redistest.Real(t).Client(t) },
	} {
		t.Run(where, func(t *testing.T) {
			rdb := newClient(t)
			hashes := []string{storedNames(event.KindExclusive, "k")[0], storedNames(event.KindOnce, "k")[0]}
			for _, hash := range hashes {
				ok(t, rdb.Set(t.Context(), hash, "not ours", time.Minute).Err())
			}
			l, err := lockcore.New(rdb, lockcore.Options{})
			ok(t, err)
			defer func() { _ = l.Close(context.Background()) }()
			for name, call := range calls {
				if err := call(t.Context(), l, lockcore.Terms{}); !errors.Is(err, lockcore.ErrRecord) || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, hash := range hashes {
				if got := rdb.Get(t.Context(), hash).Val(); got != "not ours" {
					t.Errorf("%s is now %q", hash, got)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		for _, v := range []any{nil, "OK", int64(1), []any{}, []any{"1"}, []any{int64(1)}, []any{int64(1), "2"}, []any{nil, nil}, []any{int64(99)}, []any{[]any{}}} {
			l := lockerOn(t, inWrapper(&liar{redis.NewClient(m.Options()), v}), lockcore.Options{})
			for _, name := range []string{"Acquire", "Claim", "Inspect"} {
				if err := calls[name](t.Context(), l, noWait); !errors.Is(err, lockcore.ErrUnavailable) {
					t.Errorf("%v to %s: %v", v, name, err)
				}
			}
		}
	})
}

// liar returns v as the reply to each script.
type liar struct {
	redis.UniversalClient
	v any
}

func (x *liar) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(x.v)
	return cmd
}

// badReply replaces the reply to rotate.lua, which the server runs. It closes ran when the reply
// has arrived, and delivers its own reply when gone is closed.
type badReply struct {
	net.Conn
	reply     string
	ran, gone chan struct{}
	now       bool
}

func (c *badReply) Write(b []byte) (int, error) {
	c.now = bytes.Contains(b, fmt.Append(nil, wire.Rotate.SHA[1])) || bytes.Contains(b, []byte(wire.Rotate.Text))
	return c.Conn.Write(b)
}

func (c *badReply) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.now && err == nil && n > 0 && b[0] != '-' {
		c.now = false
		close(c.ran)
		<-c.gone
		return copy(b, c.reply), nil
	}
	return n, err
}

// Redis runs a release-and-acquire, but its reply has an unknown shape. The next request may have
// the key, so it is withdrawn, and the key is free long before its lease ends.
func TestRotateBadReply(t *testing.T) {
	for _, reply := range []string{"*1\r\n+x\r\n", "*0\r\n", "+OK\r\n", "*2\r\n:1\r\n+x\r\n", "*3\r\n:1\r\n:1\r\n+x\r\n"} {
		t.Run(fmt.Sprintf("%q", reply), func(t *testing.T) {
			t.Parallel()
			o, obs := redistest.Real(t).Options(), new(locktest.Recorder)
			ran, gone, dial := make(chan struct{}), make(chan struct{}), redis.NewDialer(o)
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &badReply{Conn: conn, reply: reply, ran: ran, gone: gone}, err
			}
			rdb := redis.NewClient(o)
			t.Cleanup(func() { _ = rdb.Close() })
			l := lockerFor(t, rdb, lockcore.Options{NoGroups: true, Observer: obs})
			held := take(t, l, "k", lockcore.Terms{Lease: 30 * time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			left, released := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(left)
				_, _ = l.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever, Lease: time.Hour}) // another lease: no hand-off
			}()
			eventually(t, "a waiter", func() bool { return len(locktest.EventsOf[event.Waiting](obs)) > 0 })
			go func() {
				defer close(released)
				_ = held.Release(t.Context())
			}()
			<-ran
			cancel() // the waiter gives up while the reply is under way
			<-left
			close(gone)
			<-released
			eventually(t, "the grant is withdrawn", func() bool { // its lease is one hour
				h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
				return err == nil && h.State == lockcore.StateFree
			})
		})
	}
}
