package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// three are servers that vote at once, and a Locker behind a network.
type three struct {
	*faulty.Network
	servers []*redistest.Server
	addrs   string // for -redis
	locks   *lockcore.Locker
}

func newThree(t *testing.T, terms lockcore.Terms, args ...string) (s three) {
	t.Helper()
	s.Network = faulty.New(t)
	var addrs []string
	var masters []*redis.Client
	for range 3 {
		one := redistest.Real(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, args...)...)
		s.servers, addrs, masters = append(s.servers, one), append(addrs, one.Addr()), append(masters, one.Client(t, func(o *redis.Options) { o.Dialer = s.Dial(o.Dialer) }))
	}
	s.addrs = strings.Join(addrs, ",")
	var err error
	s.locks, err = lockcore.NewQuorum(masters, lockcore.Options{Terms: terms})
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = s.locks.Close(ctx)
	})
	return s
}

func (s three) run(t *testing.T, command string, args ...string) (code int, out, errs string) {
	t.Helper()
	return call{}.run(t, append([]string{command, "-quorum", "-redis", s.addrs}, args...)...)
}

// The commands work on a majority of servers, all of which run or one of which is away, and print
// what they print for one server.
func TestQuorum(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	single := redistest.Real(t)
	_, err := locker(t, single.Client(t), "").Acquire(lockcore.WithTask(t.Context(), "job 7"), "account:42", lockcore.Terms{})
	ok(t, err)
	for name, away := range map[string]func(*redistest.Server){
		"all": nil, "one has stopped": (*redistest.Server).Stop, "one is silent": (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newThree(t, lockcore.Terms{Lease: longLease})
			ctx := lockcore.WithTask(t.Context(), "job 7")
			if away != nil {
				away(s.servers[1])
			}
			held, err := s.locks.Acquire(ctx, "account:42", lockcore.Terms{Lease: 30 * time.Second})
			ok(t, err)
			for _, command := range []string{"ls", "show account:42", "show -json account:42"} {
				args := strings.Fields(command)
				code, out, errs := s.run(t, args[0], args[1:]...)
				_, want, _ := call{}.run(t, append([]string{args[0], "-redis", single.Addr()}, args[1:]...)...)
				if code != exitOK || errs != "" || alike(out) != alike(want) {
					t.Errorf("%s: %d %q\n%s\nwant\n%s", command, code, errs, out, want)
				}
			}
			if code, out, errs := s.run(t, "revoke", "-yes", "account:42"); code != exitOK || !strings.Contains(out, "revoked\n") {
				t.Errorf("revoke: %d %q", code, errs)
			}
			<-held.Context().Done()
			if err := context.Cause(held.Context()); !errors.Is(err, lockcore.ErrRevoked) {
				t.Errorf("ended with %v", err)
			}
			_ = held.Release(ctx)

			short, err := s.locks.Acquire(ctx, "report", lockcore.Terms{MinHold: time.Hour})
			ok(t, err)
			ok(t, short.Release(ctx))
			if _, out, _ := s.run(t, "ls"); !strings.Contains(out, "cooling") {
				t.Errorf("ls: %q", out)
			}
			if code, out, errs := s.run(t, "clear", "-exclusive", "-yes", "report"); code != exitOK || !strings.Contains(out, "cleared\n") {
				t.Errorf("clear: %d %q", code, errs)
			}
			if code, _, errs := s.run(t, "show", "report"); code != exitProblem || !strings.Contains(errs, "report is free") {
				t.Errorf("after clear: %d %q", code, errs)
			}

			if code, out, errs := s.run(t, "pause", "-for", "1h", "-yes", "partner:acme"); code != exitOK || out != "paused\n" {
				t.Errorf("pause: %d %q", code, errs)
			}
			_, err = s.locks.Acquire(ctx, "partner:acme", lockcore.Terms{Wait: lockcore.NoWait})
			if busy, ok := errors.AsType[*lockcore.BusyError](err); !ok || busy.PauseReason == "" {
				t.Errorf("during the pause: %v", err)
			}
			if code, out, errs := s.run(t, "pause", "-end", "-yes", "partner:acme"); code != exitOK || out != "resumed\n" {
				t.Errorf("pause -end: %d %q", code, errs)
			}
			if code, _, errs := s.run(t, "limit", "-rate", "5/1s", "-yes", "partner:acme"); code != exitFailed || !strings.Contains(errs, "on a majority of servers: restrictions: use one Redis") {
				t.Errorf("limit: %d %q", code, errs)
			}

			_, err = s.locks.Acquire(ctx, "account:43", lockcore.Terms{})
			ok(t, err)
			for i, one := range s.servers {
				if away == nil || i != 1 {
					silentSince(t, one, "holdfast:2:x:{account:43}")
				}
			}
			s.Down() // a living holder would renew the lease on a server before it ends on the next one
			if code, out, errs := s.run(t, "clear", "-force", "-holder", thisHolder(t), "account:43"); code != exitOK || !strings.Contains(out, "cleared\n") {
				t.Errorf("clear -force: %d %q %s", code, errs, out)
			}
			if code, _, errs := s.run(t, "show", "account:43"); code != exitProblem || !strings.Contains(errs, "account:43 is free") {
				t.Errorf("after clear -force: %d %q", code, errs)
			}
		})
	}
}

// doctor -quorum checks each server. Without a majority the commands fail, and say which servers do
// not reply.
func TestQuorumDoctor(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := newThree(t, lockcore.Terms{})
	args := []string{"-lease", "10m"} // no reply is slow relative to this lease
	if code, out, errs := s.run(t, "doctor", args...); code != exitOK || strings.Count(out, "note server") != 3 || !strings.Contains(out, "problems: 0") {
		t.Errorf("%d %q %s", code, errs, out)
	}
	s.servers[0].Stop()
	if code, out, _ := s.run(t, "doctor", args...); code != exitOK || !strings.Contains(out, "warning unreachable ("+s.servers[0].Addr()+")") {
		t.Errorf("one server down: %d %s", code, out)
	}
	s.servers[1].Stop()
	var findings []doctor.Finding
	code, out, _ := s.run(t, "doctor", append(args, "-json")...)
	if err := json.Unmarshal([]byte(out), &findings); err != nil || code != exitProblem || findings[0].Code != "unreachable" || findings[0].Severity != doctor.SeverityProblem {
		t.Errorf("two servers down: %d %v %s", code, err, out)
	}
	code, _, errs := s.run(t, "ls")
	if code != exitFailed || !strings.Contains(errs, "no majority: 2 of 3 servers failed: "+s.servers[0].Addr()) || !strings.Contains(errs, "No server listens there: is -redis right") {
		t.Errorf("ls: %d %q", code, errs)
	}
}

// Each mistake in the addresses is an error that names it. Passwords come from the environment, and
// are not printed.
func TestQuorumWrong(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := newThree(t, lockcore.Terms{}, "--requirepass", "right")
	urls := func(password string) string {
		return "redis://:" + password + "@" + strings.ReplaceAll(s.addrs, ",", ",redis://:"+password+"@")
	}
	env := func(redis string) call { return call{env: map[string]string{"HOLDFAST_REDIS": redis}} }
	first := s.servers[0].Addr()
	for _, c := range []struct {
		call       call
		args, want string
	}{
		{call{}, "ls -quorum -redis " + first, "-redis has 1 address, must have 3, 5 or 7"},
		{call{}, "ls -quorum", "-redis has 1 address"},
		{env("a:1,b:2,c:3,d:4"), "show -quorum k", "HOLDFAST_REDIS has 4 addresses, must have 3, 5 or 7"},
		{call{}, "ls -quorum -cluster -redis a:1,b:2,c:3", "goes without -cluster"},
		{call{}, "doctor -quorum -sentinel a:1 -master m", "goes without -cluster, -sentinel"},
		{call{}, "doctor -quorum -replica-acks 1 -redis a:1,b:2,c:3", "-replica-acks is for one Redis"},
		{call{}, "wake -quorum -redis a:1,b:2,c:3 k", "no tasks are parked"},
		{call{}, "ls -quorum -redis a:1,b,c:3", `"b" has no port`},
		{call{}, "ls -redis a:1,b:2,c:3", "need -cluster or -quorum"},
		{call{}, "ls -quorum -redis a:1,b:2,redis://:canary@c:3", "HOLDFAST_REDIS_PASSWORD"},
		{env("redis://:canary1,canary2,canary3@c:3"), "ls -quorum", "write a comma in a password as %2C"},
		{env(urls("canary")), "ls -quorum", "password is wrong: see the URL of HOLDFAST_REDIS"},
		{env(urls("canary")), "doctor -quorum", "password is wrong: see the URL of HOLDFAST_REDIS"},
		{env(s.addrs), "ls -quorum", "HOLDFAST_REDIS_PASSWORD"},
		{call{env: map[string]string{"HOLDFAST_REDIS_PASSWORD": "right"}}, "ls -quorum -redis " + first + "," + first + "," + first, "are the same server"},
	} {
		code, out, errs := c.call.run(t, strings.Fields(c.args)...)
		if code != exitFailed || !strings.Contains(errs, c.want) || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: %d, want %q in %q", c.args, code, c.want, errs)
		}
	}
	for _, c := range []call{env(urls("right")), {env: map[string]string{"REDIS_ADDR": s.addrs, "HOLDFAST_REDIS_PASSWORD": "right"}}} {
		if code, _, errs := c.run(t, "ls", "-quorum"); code != exitOK || !strings.Contains(errs, "no keys") {
			t.Errorf("%v: %d %q", c.env, code, errs)
		}
	}
}
