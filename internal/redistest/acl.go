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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The rights that docs/security.md publishes, for the default prefix; internal/security compares them with the page.
const (
	Commands = "-@all +eval +evalsha +time +get +set +hget +hmget +hset +hdel +pexpire +pttl +del +zadd +zrem +zrange +zrank +zscore +zcard +zpopmin +publish +subscribe +unsubscribe +ping"
	Keys     = "~holdfast:2:*"
	Channels = "resetchannels &holdfast:2:wake:*"
)

// LeastUser is who the Lockers of a process are where the environment variable HOLDFAST_TEST_ACL is true: a user who has only the rights
// above. Tests administer their servers as before. When a server stops, whatever was denied to that user fails the test.
const LeastUser = "holdfast"

const leastPassword = "only-for-tests"

func leastRights() bool {
	on, _ := strconv.ParseBool(os.Getenv("HOLDFAST_TEST_ACL"))
	return on
}

// MoreRights skips a test that needs more rights than [LeastUser] has, if the tests' Lockers run as that user.
func MoreRights(tb testing.TB) {
	tb.Helper()
	if leastRights() {
		tb.Skip("HOLDFAST_TEST_ACL is true, and this test needs more rights")
	}
}

// addUser makes the user, if the environment asks for it.
func (s *Server) addUser(ctx context.Context, c *redis.Client) error {
	if !leastRights() {
		return nil
	}
	args := []any{"ACL", "SETUSER", LeastUser, "reset", "on", ">" + leastPassword, "+wait", "+scan", "+info"} // of ReplicaAcks and List
	for rule := range strings.FieldsSeq(Commands + " " + Keys + " " + Channels) {
		if rule != "-@all" { // "reset" says so
			args = append(args, rule)
		}
	}
	err := c.Do(ctx, args...).Err()
	s.least.Store(err == nil)
	return err
}

// dial makes the connections of a Locker those of the user with the least rights. A Locker makes its clients from the options of the test's
// own one, so that nothing but who dials tells them apart.
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

// byLocker looks for the dialer of internal/backend/redis among the callers.
func byLocker() bool {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/backend/redis.") && strings.Contains(f.Function, "endWith.") {
			return true
		}
		if !more {
			return false
		}
	}
}

// denied fails the test if the user with the least rights was refused something. A server that does not answer, for a test has
// stopped or crashed it, is not asked.
func (s *Server) denied() {
	s.tb.Helper()
	if !s.least.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := s.Options()
	o.ContextTimeoutEnabled, o.MaxRetries, o.PoolSize = true, -1, 1000 // in a small pool go-redis would go on dialing
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	log, err := c.ACLLog(ctx, 128).Result()
	if err != nil {
		s.tb.Logf("the ACL LOG is not known: %v", err)
	}
	for _, e := range log {
		if e.Username == LeastUser && e.Object != "client|setinfo" { // from 7.2 on go-redis says its name; it goes on without
			s.tb.Errorf("denied to a Locker: %s %s, %s, %d times", e.Reason, e.Object, e.Context, e.Count)
		}
	}
}
