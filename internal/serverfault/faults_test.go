package serverfault_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// fault is one fault of a server. strike returns when it is over.
type fault struct {
	name    string
	strike  func(t *testing.T, s *redistest.Server, admin *redis.Client)
	forgets bool   // the server's data is lost, leases too: a key may have two holders until one of them sends a command
	outlast bool   // it lasts longer than a lease
	says    string // the error of a plain command meanwhile
}

const (
	lease = 3 * time.Second
	gap   = time.Second // of faults that a lease survives
	long  = lease + time.Second
)

func config(t *testing.T, admin *redis.Client, settings ...string) {
	t.Helper()
	for i := 0; i < len(settings); i += 2 {
		if err := admin.ConfigSet(context.Background(), settings[i], settings[i+1]).Err(); err != nil {
			t.Fatalf("CONFIG SET %s %s: %v", settings[i], settings[i+1], err)
		}
	}
}

func do(t *testing.T, admin *redis.Client, args ...any) {
	t.Helper()
	if err := admin.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// while changes a setting, waits, and changes it back.
func while(setting, bad, good string, d time.Duration) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		config(t, admin, setting, bad)
		time.Sleep(d)
		config(t, admin, setting, good)
	}
}

// again repeats a command until d is over.
func again(d, every time.Duration, args ...any) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		for end := time.Now().Add(d); ; time.Sleep(every) {
			if do(t, admin, args...); time.Now().After(end) {
				return
			}
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !chaos.Within(recovery, ok) {
		t.Fatalf("not within %v: %s", recovery, what)
	}
}

func paused(what string) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		do(t, admin, "CLIENT", "PAUSE", gap.Milliseconds(), what)
		time.Sleep(gap)
	}
}

func stopped(d time.Duration) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(_ *testing.T, s *redistest.Server, _ *redis.Client) {
		s.Pause()
		time.Sleep(d)
		s.Resume()
	}
}

var faults = []fault{
	{name: "client pause all", strike: paused("ALL"), says: "timeout"},
	{name: "client pause write", strike: paused("WRITE"), says: "timeout"},
	{name: "debug sleep", strike: again(0, 0, "DEBUG", "SLEEP", gap.Seconds()), says: "timeout"},
	{name: "debug sleep, longer than a lease", strike: again(0, 0, "DEBUG", "SLEEP", long.Seconds()), outlast: true, says: "timeout"},
	{name: "stopped", strike: stopped(gap), says: "timeout"},
	{name: "stopped, longer than a lease", strike: stopped(long), outlast: true, says: "timeout"},
	{name: "client kill", strike: func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		for end := time.Now().Add(gap); time.Now().Before(end); time.Sleep(gap / 10) {
			do(t, admin, "CLIENT", "KILL", "TYPE", "normal")
			do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		}
	}},
	{name: "script flush", strike: again(gap, 10*time.Millisecond, "SCRIPT", "FLUSH")},
	{name: "oom", strike: while("maxmemory", "1", "0", gap), says: "OOM"},
	{name: "no replicas", strike: while("min-replicas-to-write", "1", "0", gap), says: "NOREPLICAS"},
	{name: "read only", strike: func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		do(t, admin, "REPLICAOF", "127.0.0.1", "1")
		time.Sleep(gap)
		do(t, admin, "REPLICAOF", "NO", "ONE")
	}, says: "READONLY"},
	{name: "misconf", strike: func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		dir, err := admin.ConfigGet(context.Background(), "dir").Result()
		if err != nil || os.RemoveAll(dir["dir"]) != nil {
			t.Fatal("no folder to remove: ", err)
		}
		config(t, admin, "save", "3600 1", "stop-writes-on-bgsave-error", "yes")
		do(t, admin, "BGSAVE") // it fails, because its folder is missing
		eventually(t, "BGSAVE fails", func() bool {
			return strings.Contains(admin.Info(context.Background(), "persistence").Val(), "rdb_last_bgsave_status:err")
		})
		time.Sleep(gap)
		config(t, admin, "save", "", "stop-writes-on-bgsave-error", "no")
	}, says: "MISCONF"},
	{name: "busy script", strike: func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		config(t, admin, "busy-reply-threshold", "50")
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			_ = admin.Eval(context.Background(), "while true do end", nil).Err() // ends by SCRIPT KILL
		}()
		eventually(t, "the script runs", func() bool { return redis.HasErrorPrefix(admin.Time(context.Background()).Err(), "BUSY") })
		time.Sleep(gap)
		do(t, admin, "SCRIPT", "KILL")
		<-killed
	}, says: "BUSY"},
	{name: "loading", strike: func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		config(t, admin, "key-load-delay", "2000", "loading-process-events-interval-bytes", "1024")
		do(t, admin, "DEBUG", "POPULATE", "500", "{populate}", "100")
		do(t, admin, "DEBUG", "RELOAD") // 500 keys, 2 ms each
		config(t, admin, "key-load-delay", "0")
	}, says: "LOADING"},
	{name: "too many clients", strike: func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		config(t, admin, "maxclients", "1")
		do(t, admin, "CLIENT", "KILL", "TYPE", "normal")
		do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(gap)
		config(t, admin, "maxclients", "10000")
		if info := admin.Info(context.Background(), "stats").Val(); strings.Contains(info, "rejected_connections:0\r") {
			t.Error("inconclusive: no connection was refused")
		}
	}},
	{name: "flush", strike: again(0, 0, "FLUSHALL"), forgets: true},
	{name: "restart without data", strike: func(_ *testing.T, s *redistest.Server, _ *redis.Client) {
		s.Stop()
		s.Start()
	}, forgets: true},
}
