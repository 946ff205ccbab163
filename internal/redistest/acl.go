//go:build unix

package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The rights that docs/security.md lists, for the default prefix. A test of internal/security
// compares them with the page.
const (
	Commands = "-@all +eval +evalsha +time +get +set +hget +hmget +hset +hdel +pexpire +pttl +del +zadd +zrem +zrange +zrank +zscore +zcard +publish +subscribe +unsubscribe +ping"
	Keys     = "~holdfast:2:*"
	Channels = "resetchannels &holdfast:2:wake:*"
)

// LeastUser is the user of the Lockers of a process if the environment variable HOLDFAST_TEST_ACL
// is true. The user has only the rights above and a few for tests. Tests administer their servers
// as the default user. When a server stops, each command that was denied to LeastUser fails the
// test.
const LeastUser = "holdfast"

const leastPassword = "only-for-tests"

// all has the names of the running tests that have called MoreRights.
var all sync.Map

// MoreRights is for a test whose Lockers need more rights than [LeastUser] has: on servers that the
// test and its subtests start afterwards, they have all rights.
func MoreRights(tb testing.TB) {
	tb.Helper()
	all.Store(tb.Name(), nil)
	tb.Cleanup(func() { all.Delete(tb.Name()) })
}

// leastRights reports whether the Lockers of a test have the fewest rights.
func leastRights(test string) bool {
	for more := true; more; {
		if _, found := all.Load(test); found {
			return false
		}
		i := strings.LastIndexByte(test, '/')
		if more = i >= 0; more {
			test = test[:i]
		}
	}
	on, _ := strconv.ParseBool(os.Getenv("HOLDFAST_TEST_ACL"))
	return on
}

// addUser creates the user if the Lockers of the test have the fewest rights.
func (s *Server) addUser(ctx context.Context, c *redis.Client) error {
	if !leastRights(s.tb.Name()) {
		return nil
	}
	args := []any{"ACL", "SETUSER", LeastUser, "reset", "on", ">" + leastPassword, "+wait", "+scan", "+info", "+config|get"} // +wait for ReplicaAcks, +scan and +info for List, +info and +config|get for NewQuorum
	for rule := range strings.FieldsSeq(Commands + " " + Keys + " " + Channels) {
		if rule != "-@all" { // part of "reset"
			args = append(args, rule)
		}
	}
	err := c.Do(ctx, args...).Err()
	s.least.Store(err == nil)
	return err
}

// dial authenticates the connections of a Locker as the user with the least rights. A Locker makes
// its clients from the options of the test's own client. So only the call stack of the dial tells
// them apart.
func (s *Server) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil || !s.least.Load() || !byLocker() {
		return conn, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, len("+OK\r\n"))
	if _, err = fmt.Fprintf(conn, "AUTH %s %s\r\n", LeastUser, leastPassword); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) != "+OK\r\n" {
		err = fmt.Errorf("AUTH: %q", answer)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

// byLocker reports whether the dialer of internal/backend/redis/conn is among the callers.
func byLocker() bool {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/backend/redis/conn.") && strings.Contains(f.Function, "endWith.") {
			return true
		}
		if !more {
			return false
		}
	}
}

// denied fails the test if a command was denied to the user with the least rights. It ignores a
// server that does not reply, because a test has stopped or crashed it.
func (s *Server) denied() {
	s.tb.Helper()
	if !s.least.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := s.Options()
	o.ContextTimeoutEnabled, o.MaxRetries, o.PoolSize = true, -1, 1000 // with a small pool go-redis would continue to dial
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	log, err := c.ACLLog(ctx, 128).Result()
	if err != nil {
		s.tb.Logf("cannot read the ACL LOG: %v", err)
	}
	for _, e := range log {
		if e.Username == LeastUser && e.Object != "client|setinfo" { // from Redis 7.2 on go-redis sets its name; it continues without
			s.tb.Errorf("denied to a Locker: %s %s, %s, %d times", e.Reason, e.Object, e.Context, e.Count)
		}
	}
}
