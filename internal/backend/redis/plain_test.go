package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// An exclusive key is a string in Redis while only its holder has used it, also after a renewal. A
// call of another Locker converts it to a hash. Nothing is left of either after the release.
func TestPlainHold(t *testing.T) {
	t.Parallel()
	rdb := redistest.Real(t).Client(t)
	l, other := lockerOn(t, rdb, lockcore.Options{}), lockerOn(t, rdb, lockcore.Options{})
	hash := storedNames(event.KindExclusive, "k")[0]
	for _, met := range []bool{false, true} {
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		ok(t, le.Extend(t.Context(), time.Hour))
		kind := "string"
		if met {
			if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
				t.Fatal(err)
			}
			kind = "hash"
		}
		if got := rdb.Type(t.Context(), hash).Val(); got != kind {
			t.Errorf("met %v: the key is a %s, want a %s", met, got, kind)
		}
		if left := rdb.PTTL(t.Context(), hash).Val(); left < 25*time.Hour-time.Minute || left > 25*time.Hour+time.Minute {
			t.Errorf("met %v: the TTL is %v, want 25h", met, left)
		}
		fields, err := redistest.Fields(t.Context(), rdb, hash)
		if err != nil || fields["t"] != fmt.Sprint(le.Token()) || fields["o"] != l.ID() {
			t.Errorf("met %v: the stored fields are %v, %v", met, fields, err)
		}
		ok(t, le.Release(t.Context()))
		if n := rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("met %v: %d keys are left", met, n)
		}
	}
}

// The token after a batch of a plain hold is greater than all tokens of the batch, however short
// the batch was. Redis forgets the key only if its clock is past them.
func TestPlainHoldTokens(t *testing.T) {
	for elapsed, left := range map[time.Duration]int64{0: 1, 1500 * time.Nanosecond: 1, 2 * time.Microsecond: 0, 10 * time.Microsecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			l, _, _ := w.Locker(lockcore.Options{})
			first := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
			second := make(chan *lockcore.Lease, 1)
			go func() { second <- w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{})) }()
			synctest.Wait()
			ok(t, first.Release(t.Context()))
			handed := <-second
			time.Sleep(elapsed)
			ok(t, handed.Release(t.Context()))
			if n := w.Redis.Exists(t.Context(), storedNames(event.KindExclusive, "k")[0]).Val(); n != left {
				t.Errorf("after %v: %d keys are left, want %d", elapsed, n, left)
			}
			next := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
			if handed.Token() != first.Token()+1 || next.Token() <= handed.Token() {
				t.Errorf("after %v: tokens %d, %d, %d", elapsed, first.Token(), handed.Token(), next.Token())
			}
			ok(t, next.Release(t.Context()))
		})
	}
}

// A grant that may have a late duplicate is not released as a plain hold: its id is remembered.
func TestPlainHoldRepeated(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	l, faults, _ := w.Locker(lockcore.Options{})
	f := faults.CutReply(faulty.Script("acquire"))
	le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
	select {
	case <-f.Struck():
	default:
		t.Fatal("no reply was cut")
	}
	ok(t, le.Release(t.Context()))
	fields, err := redistest.Fields(t.Context(), w.Redis, storedNames(event.KindExclusive, "k")[0])
	if err != nil || fields["l"] == "" || fields["s"] != "" {
		t.Errorf("after the release %v, %v is stored, want the id of the grant", fields, err)
	}
}

// hidesCtx is a hook of a user that replaces the ctx.
type hidesCtx struct{}

func (hidesCtx) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hidesCtx) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return next(context.Background(), cmd) }
}

func (hidesCtx) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// oneNode makes a plain server a cluster for clients of nodes that node makes: it replies to CLUSTER
// SLOTS that the server has all slots.
func oneNode(node func(*redis.Options) *redis.Client) func(*redis.Options) *redis.Client {
	if node == nil {
		node = redis.NewClient
	}
	return func(o *redis.Options) *redis.Client {
		c := node(o)
		c.AddHook(allSlots{addr: o.Addr})
		return c
	}
}

type allSlots struct {
	hidesCtx
	addr string
}

func (h allSlots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		slots, ok := cmd.(*redis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		slots.SetVal([]redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: h.addr}}}})
		return nil
	}
}

// A ClusterClient sends a command again after a missing reply and does not report that. The Locker
// detects it.
func TestPlainHoldRepeatedCluster(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	dial := w.Options()
	for _, c := range []struct {
		name  string
		delay time.Duration
		cut   bool
		node  func(*redis.Options) *redis.Client
		left  bool // the release remembers the id
	}{
		{name: "slow", delay: 30 * time.Millisecond},
		{name: "cut", cut: true, left: true},
		{name: "hook", node: func(o *redis.Options) *redis.Client {
			c := redis.NewClient(o)
			c.AddHook(hidesCtx{})
			return c
		}, left: true},
		{name: "retries", node: func(o *redis.Options) *redis.Client {
			o.MaxRetries = 3
			return redis.NewClient(o)
		}, left: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			faults := faulty.New(t)
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{dial.Addr}, Dialer: faults.Dial(dial.Dialer), NewClient: oneNode(c.node),
			})
			l := lockerOn(t, rdb, lockcore.Options{})
			first, err := l.Acquire(t.Context(), c.name+" first", lockcore.Terms{}) // opens a connection
			ok(t, err)
			ok(t, first.Release(t.Context()))
			faults.Delay(c.delay)
			if c.cut {
				f := faults.CutReply(nil)
				defer func() {
					select {
					case <-f.Struck():
					default:
						t.Error("no reply was cut")
					}
				}()
			}
			for i := range 20 {
				key := fmt.Sprint(c.name, i)
				le, err := l.Acquire(t.Context(), key, lockcore.Terms{})
				ok(t, err)
				ok(t, le.Release(t.Context()))
				fields, err := redistest.Fields(t.Context(), w.Redis, storedNames(event.KindExclusive, key)[0])
				ok(t, err)
				if left := fields["l"] != ""; left == c.left {
					return
				} else if c.left {
					break // otherwise the machine may have delayed a reply until the end of the call
				}
			}
			t.Errorf("in no round the release remembered its id as wanted: %v", c.left)
		})
	}
}

// The first run of a once key is a string in Redis, also after a renewal, and so is its record. A
// hash is stored after a call of another Locker during the run, for a large record, and after a
// failed run. Replays are the same.
func TestPlainOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.Real(t).Client(t)
	l, other := lockerOn(t, rdb, lockcore.Options{}), lockerOn(t, rdb, lockcore.Options{})
	claim := lockcore.Claim{Fingerprint: []byte("1 f\n\x00"), Terms: noWait}
	for name, c := range map[string]struct {
		met, fails bool
		record     string
		kind       string
	}{
		"alone":  {record: " r\x00\n", kind: "string"},
		"met":    {record: " r\x00\n", met: true, kind: "hash"},
		"empty":  {kind: "string"},
		"large":  {record: strings.Repeat("r", 5000), kind: "hash"},
		"failed": {fails: true, kind: "hash"},
	} {
		stored := storedNames(event.KindOnce, name)[0]
		is := func(when, want string) {
			t.Helper()
			if got := rdb.Type(t.Context(), stored).Val(); got != want {
				t.Errorf("%s: %s the key is a %s, want a %s", name, when, got, want)
			}
		}
		le, _, err := l.Claim(t.Context(), name, claim)
		ok(t, err)
		ok(t, le.Extend(t.Context(), time.Hour))
		is("after a renewal", "string")
		if c.met {
			if _, _, err := other.Claim(t.Context(), name, claim); !errors.Is(err, lockcore.ErrBusy) {
				t.Fatal(err)
			}
			is("after a call of another Locker", "hash")
		}
		fields, err := redistest.Fields(t.Context(), rdb, stored)
		if err != nil || fields["n"] != "1" || fields["g"] != string(claim.Fingerprint) || fields["o"] != l.ID() {
			t.Errorf("%s: the stored fields are %q, %v", name, fields, err)
		}
		if c.fails {
			ok(t, le.Release(t.Context()))
			is("after a run that failed", c.kind)
			le, _, err := other.Claim(t.Context(), name, claim)
			if ok(t, err); le.Attempt() != 2 {
				t.Errorf("%s: attempt %d, want 2", name, le.Attempt())
			}
			ok(t, le.Complete(t.Context(), nil, time.Minute))
			continue
		}
		ok(t, le.Complete(t.Context(), []byte(c.record), time.Minute))
		is("after the completion", c.kind)
		h, err := l.Inspect(t.Context(), event.KindOnce, name)
		if err != nil || h.State != lockcore.StateDone || h.Record == nil || string(h.Record.Data) != c.record || h.Attempt != 1 || h.Token != le.Token() || h.Holder.PID == 0 {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		is("after Inspect", c.kind)
		for range 2 {
			_, record, err := other.Claim(t.Context(), name, claim)
			if err != nil || string(record.Data) != c.record || record.Attempt != 1 {
				t.Errorf("%s: the replay is %+v, %v", name, record, err)
			}
		}
		_, _, err = other.Claim(t.Context(), name, lockcore.Claim{Fingerprint: []byte("2"), Terms: noWait})
		if !errors.Is(err, lockcore.ErrMismatch) {
			t.Errorf("%s: another payload: %v, want ErrMismatch", name, err)
		}
		is("after replays", c.kind)
		if left := rdb.PTTL(t.Context(), stored).Val(); left > time.Minute || left < 50*time.Second {
			t.Errorf("%s: the TTL is %v, want a minute", name, left)
		}
	}
}

// If a late duplicate of a claim may exist, its record contains the id of the grant.
func TestPlainOnceRepeated(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	l, faults, _ := w.Locker(lockcore.Options{})
	f := faults.CutReply(faulty.Script("acquire"))
	le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{})
	ok(t, err)
	select {
	case <-f.Struck():
	default:
		t.Fatal("no reply was cut")
	}
	ok(t, le.Complete(t.Context(), nil, time.Hour))
	fields := w.Redis.HGetAll(t.Context(), storedNames(event.KindOnce, "k")[0]).Val()
	if fields["l"] == "" || fields["s"] != "d" {
		t.Errorf("after the completion %v is stored, want the id of the grant", fields)
	}
}
