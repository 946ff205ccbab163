package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// lies returns a client that changes the replies to some commands. It simulates servers that a test
// cannot start.
func lies(t *testing.T, tell map[string]func(is any) any) redis.UniversalClient {
	t.Helper()
	rdb := redistest.Real(t, sound...).Client(t)
	rdb.AddHook(tongue{tell})
	return wrapper{rdb}
}

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

type tongue struct{ tell map[string]func(is any) any }

func (tongue) DialHook(next redis.DialHook) redis.DialHook { return next }

func (tongue) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h tongue) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			if tell := h.tell[strings.ToUpper(cmd.Name())]; tell != nil {
				c.SetVal(tell(c.Val()))
			}
			if told, bad := c.Val().(serverError); bad {
				err = told
				c.SetErr(told)
			}
		}
		return err
	}
}

var versions = []struct {
	info string
	code doctor.Code // empty: none
	seen string
}{
	{"redis_version:5.0.14", doctor.CodeVersion, "5.0.14"},
	{"redis_version:6.0.20", doctor.CodeVersion, "6.0.20"},
	{"redis_version:6.2.19", doctor.CodeLua, "Redis 6.2.19"},
	{"redis_version:6.2.20", "", ""},
	{"redis_version:7.0.15", doctor.CodeLua, "Redis 7.0.15"},
	{"redis_version:7.2.10", doctor.CodeLua, "7.2.10"},
	{"redis_version:7.2.11", "", ""},
	{"redis_version:7.4.5", doctor.CodeLua, "7.4.5"},
	{"redis_version:7.4.6", "", ""},
	{"redis_version:8.0.3", doctor.CodeLua, "8.0.3"},
	{"redis_version:8.0.4", "", ""},
	{"redis_version:8.2.1", doctor.CodeLua, "8.2.1"},
	{"redis_version:8.2.2", "", ""},
	{"redis_version:8.4.0", "", ""},
	{"redis_version:9.0.0", "", ""},
	{"redis_version:7.2.4 server_name:valkey valkey_version:8.1.3", doctor.CodeLua, "Valkey 8.1.3"},
	{"redis_version:7.2.4 server_name:valkey valkey_version:8.0.1", doctor.CodeLua, "Valkey 8.0.1"},
	{"redis_version:7.2.4 server_name:valkey valkey_version:8.1.4", "", ""},
	{"redis_version:7.2.4 server_name:valkey valkey_version:9.1.2", "", ""},
	{"redis_version:unstable", "", ""},
	{"redis_version:99999999999999999999.1.1", "", ""},
}

// A version before 6.2 is a problem, and one without the fixes of Lua a warning. Valkey has its own
// version numbers.
func TestCheckVersions(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	for _, c := range versions {
		t.Run(c.info, func(t *testing.T) {
			t.Parallel()
			findings := examine(t, lies(t, map[string]func(any) any{"INFO": func(any) any { return strings.ReplaceAll(c.info, " ", "\r\n") }}), lockcore.Options{})
			for _, code := range []doctor.Code{doctor.CodeVersion, doctor.CodeLua} {
				f, found := find(findings, code)
				if code == c.code && (!found || !strings.Contains(f.Seen, c.seen)) {
					t.Errorf("%s: %+v", code, f)
				} else if code != c.code && found && c.code != doctor.CodeVersion {
					t.Error(f)
				}
			}
			if strings.Contains(c.info, "valkey") {
				want(t, findings, doctor.CodeServer, doctor.SeverityNote, "Valkey")
			}
		})
	}
}

// A clock with an offset is a warning. A clock that jumps or runs at another rate is a problem, but
// a constant offset is not.
func TestCheckClocks(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	clock := func(of func(passed time.Duration) time.Duration) []doctor.Finding {
		begin := time.Now()
		return examine(t, lies(t, map[string]func(any) any{"TIME": func(any) any {
			now := begin.Add(of(time.Since(begin)))
			return []any{fmt.Sprint(now.Unix()), fmt.Sprint(now.Nanosecond() / 1000)}
		}}), lockcore.Options{})
	}
	findings := clock(func(passed time.Duration) time.Duration { return passed - time.Hour })
	want(t, findings, doctor.CodeClock, doctor.SeverityWarning, "behind")
	if f, found := find(findings, doctor.CodeClockDrift); found {
		t.Error(f)
	}
	findings = clock(func(passed time.Duration) time.Duration { return passed*2 + 5*time.Second })
	want(t, findings, doctor.CodeClock, doctor.SeverityWarning, "ahead of")
	want(t, findings, doctor.CodeClockDrift, doctor.SeverityProblem, "advanced by")
	jumped := 0
	findings = clock(func(passed time.Duration) time.Duration {
		if jumped++; jumped > 25 {
			passed -= 200 * time.Millisecond
		}
		return passed
	})
	want(t, findings, doctor.CodeClockDrift, doctor.SeverityProblem, "advanced by")
}

// Check recognizes a Sentinel of Redis and of Valkey. Replies of any shape cause no panic.
func TestCheckStrangers(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	for _, info := range []string{"redis_mode:sentinel\r\n", "server_mode:sentinel\r\n"} {
		sentinel := lies(t, map[string]func(any) any{
			"INFO": func(any) any { return info },
			"TIME": func(any) any { return serverError("ERR unknown command 'TIME', with args beginning with: ") },
		})
		want(t, examine(t, sentinel, lockcore.Options{}), doctor.CodeSentinel, doctor.SeverityProblem, "Sentinel")
	}
	for _, nonsense := range []any{nil, int64(7), "", ":::\r\n:", []any{}, []any{nil, []any{}}, []any{"a"}, map[any]any{}, map[any]any{1: nil, "timeout": []any{}}, true, 1.5} {
		tell := map[string]func(any) any{}
		for _, name := range []string{"INFO", "CONFIG", "TIME", "SLOWLOG", "PUBSUB", "CLUSTER", "EVAL", "ROLE"} {
			tell[name] = func(any) any { return nonsense }
		}
		examine(t, lies(t, tell), lockcore.Options{})
	}
}

// A feature that miniredis lacks is not a problem.
func TestCheckMemoryRedis(t *testing.T) {
	t.Parallel()
	for _, f := range examine(t, redistest.Bubble(t).Client(t), lockcore.Options{}) {
		if f.Severity == doctor.SeverityProblem {
			t.Error(f)
		}
	}
}
