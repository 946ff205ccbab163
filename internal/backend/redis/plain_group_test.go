package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// groupsOnNodes acquires and releases keys at the same time. They are on a cluster of one server,
// whose client is made by node. It returns the world and the names of the keys.
func groupsOnNodes(t *testing.T, node func(*redis.Options) *redis.Client) (w *world, keys []string) {
	t.Helper()
	w = realWorld(t)
	dial := w.Options()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{dial.Addr}, Dialer: dial.Dialer, NewClient: oneNode(node)})
	defer func() { _ = rdb.Close() }()
	var heard locktest.Recorder
	l, err := lockcore.New(rdb, lockcore.Options{Observer: &heard})
	ok(t, err)
	for i := range callers {
		keys = append(keys, fmt.Sprint("k", i))
	}
	errs, _ := atOnce(lockAndUnlock(t.Context(), l, lockcore.Terms{}))
	ok(t, errors.Join(errs...))
	ok(t, l.Close(t.Context()))
	eventually(t, "a group is counted", func() bool { return len(locktest.EventsOf[event.GroupSent](&heard)) > 0 })
	return w, keys
}

// hidesAllCtx is a hook that replaces the ctx of single commands and of pipelines.
type hidesAllCtx struct{ hidesCtx }

func (hidesAllCtx) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return next(context.Background(), cmds) }
}

// The client of a node may repeat a group, or a hook of the user may. A hook that hides the ctx
// also hides repeats. In both cases the release of each key remembers its id.
func TestPlainHoldRepeatedGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node func(*redis.Options) *redis.Client
		left bool // the releases remember the ids
	}{
		"default": {},
		"hook": {func(o *redis.Options) *redis.Client {
			c := redis.NewClient(o)
			c.AddHook(hidesAllCtx{})
			return c
		}, true},
		"retries": {func(o *redis.Options) *redis.Client {
			o.MaxRetries = 3
			return redis.NewClient(o)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, keys := groupsOnNodes(t, c.node)
			left := 0
			for _, key := range keys {
				fields, err := redistest.Fields(t.Context(), w.Redis, storedNames(event.KindExclusive, key)[0])
				ok(t, err)
				if fields["l"] != "" {
					left++
				}
			}
			if c.left && left < len(keys) || left == len(keys) && !c.left { // on a slow machine some replies may be so late that commands are repeated
				t.Errorf("%d of %d releases remember their id", left, len(keys))
			}
		})
	}
}

// keepsCommands is a hook of a user that keeps all commands, for example for a log.
type keepsCommands struct {
	hidesCtx
	mu   sync.Mutex
	kept []redis.Cmder
}

func (k *keepsCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		k.keep(cmd)
		return next(ctx, cmd)
	}
}

func (k *keepsCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		k.keep(cmds...)
		return next(ctx, cmds)
	}
}

func (k *keepsCommands) keep(cmds ...redis.Cmder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, cmds...)
}

// A command that a hook of the user keeps does not change after its reply.
func TestGroupCommandsKept(t *testing.T) {
	t.Parallel()
	var hook keepsCommands
	groupsOnNodes(t, func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		c.AddHook(&hook)
		return c
	})
	scripts := 0
	for _, cmd := range hook.kept {
		args := cmd.Args()
		for i, arg := range args {
			if arg == nil {
				t.Fatalf("argument %d of %v is nil", i, args)
			}
		}
		if len(args) < 6 || args[0] != "evalsha" {
			continue
		}
		scripts++
		if id, is := args[5].(*string); is && len(*id) != 26 {
			t.Errorf("the id is %q", *id)
		}
	}
	if scripts < 2*callers {
		t.Errorf("%d scripts are kept", scripts)
	}
}
