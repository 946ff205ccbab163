package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// listed returns the states of the keys that List yields, by kind and name.
func listed(t *testing.T, l *lockcore.Locker, o doctor.ListOptions) map[string]lockcore.State {
	t.Helper()
	got := map[string]lockcore.State{}
	for e, err := range doctor.List(t.Context(), l, o) {
		if err != nil {
			t.Fatal(err)
		}
		got[e.Kind.String()+" "+e.Key] = e.State
	}
	return got
}

// List yields every key that is not free, with name and state, as Inspect does. It omits keys of
// another prefix and of other programs. One server, a Cluster and a wrapper behave alike.
// Shows: D3
func TestList(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"single": redistest.Real(t).Client(t), "cluster": oneNodeCluster(t), "wrapper": wrapper{redistest.Real(t).Client(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, other := listLocker(t, rdb, "h[x]*f"), listLocker(t, rdb, "hxf")
			ctx := t.Context()
			strange := "odd {name}% \x00ü*"
			for _, key := range []string{"account:42", strange, "freed"} {
				le := must(l.Acquire(ctx, key, noWait))
				if key == "freed" {
					ok(t, le.Release(ctx))
				}
			}
			must(l.AcquireShare(ctx, "read", lockcore.Limit{N: lockcore.Unlimited}, lockcore.Terms{}))
			must(l.AcquireShare(ctx, "read", lockcore.Limit{N: 5, Weight: 3}, lockcore.Terms{}))
			done, _, err := l.Claim(ctx, "paid", lockcore.Claim{})
			ok(t, err)
			must(other.Acquire(ctx, "foreign", noWait))
			ok(t, done.Complete(ctx, []byte("record"), time.Hour))
			left, _, err := l.Claim(ctx, "left", lockcore.Claim{})
			ok(t, err)
			ok(t, left.Abandon(ctx))
			b := access.Of(l).Backend
			parkedOn := b.Key(backend.KindExclusive, "account:42")
			_, err = b.Park(ctx, backend.ParkRequest{Key: &parkedOn, Entry: "eu/default/7", Most: 10, Keep: time.Minute})
			ok(t, err)
			ok(t, l.Pause(ctx, "paused", time.Hour, "acme is down"))
			for _, key := range []string{"account:42", "slow"} {
				ok(t, l.Restrict(ctx, key, lockcore.Restriction{Limit: 1, Rate: lockcore.Rate{N: 5, Per: time.Second}, For: time.Hour, Reason: "acme is slow"}))
			}
			ok(t, rdb.Set(ctx, "h[x]*f:2:x:{a string}", "no hash", 0).Err())
			ok(t, rdb.Set(ctx, "h[x]*f:2:x:{astring}", "no hash", 0).Err())

			want := map[string]lockcore.State{
				"exclusive account:42": "held", "exclusive " + strange: "held", "once paid": "done", "once left": "abandoned",
				"exclusive read": "shared", "exclusive paused": "cooling",
			}
			if got := listed(t, l, doctor.ListOptions{}); !maps.Equal(got, want) {
				t.Errorf("listed %v, want %v", got, want)
			}
			want["exclusive slow"] = "free"
			if got := listed(t, l, doctor.ListOptions{Free: true}); !maps.Equal(got, want) {
				t.Errorf("listed with Free %v, want %v", got, want)
			}
			for e, err := range doctor.List(ctx, l, doctor.ListOptions{Free: true, RecordHeads: true}) {
				ok(t, err)
				h, err := l.Inspect(ctx, e.Kind, e.Key)
				ok(t, err)
				h.Record = nil // List returns its first bytes, see RecordHead
				if a, b := timeless(e.Holding), timeless(h); !reflect.DeepEqual(a, b) || (e.Holder == event.Holder{}) != (e.Key == "paused" || e.Key == "slow") {
					t.Errorf("%s: listed as %+v, inspected as %+v", e.Key, a, b)
				}
				if parked := e.Parked == 1 && e.OldestParked == "eu/default/7"; parked != (e.Key == "account:42") {
					t.Errorf("%s: listed with %d parked tasks, the oldest %q", e.Key, e.Parked, e.OldestParked)
				}
				if done := e.State == lockcore.StateDone; done != (string(e.RecordHead) == "record") {
					t.Errorf("%s: record %q", e.Key, e.RecordHead)
				}
			}
			for o, n := range map[doctor.ListOptions]int{
				{Kind: event.KindOnce}: 2, {Kind: event.KindExclusive}: 4, {Match: "account:*"}: 1, {Match: "odd {*"}: 1, {Match: "account"}: 0,
			} {
				if got := listed(t, l, o); len(got) != n {
					t.Errorf("%+v: %v, want %d", o, got, n)
				}
			}
			if got := listed(t, other, doctor.ListOptions{}); len(got) != 1 {
				t.Errorf("of the other prefix: %v", got)
			}
		})
	}
}

// timeless returns h without its durations, which differ between two replies.
func timeless(h lockcore.Holding) lockcore.Holding {
	h.HeldFor, h.Remaining, h.KeepLeft, h.ParkedFor, h.PauseLeft, h.Restriction.For = 0, 0, 0, 0, 0, 0
	for i := range h.Shares {
		h.Shares[i].HeldFor, h.Shares[i].Remaining = 0, 0
	}
	return h
}

// List yields all keys if SCAN returns them in several steps, also after SCRIPT FLUSH. The loop may
// break.
// Shows: D3
func TestListMany(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	rdb := redistest.Real(t).Client(t)
	l := listLocker(t, rdb, "p")
	ctx := t.Context()
	const keys = 2500
	pipe := rdb.Pipeline()
	for i := range keys {
		pipe.Set(ctx, fmt.Sprint("somebody's ", i), 1, 0)
	}
	_, err := pipe.Exec(ctx)
	ok(t, err)
	for i := range keys {
		must(l.Acquire(ctx, fmt.Sprint(i), lockcore.Terms{Wait: time.Minute}))
	}
	ok(t, rdb.ScriptFlush(ctx).Err())
	if got := listed(t, l, doctor.ListOptions{}); len(got) != keys {
		t.Errorf("%d keys, want %d", len(got), keys)
	}
	seen := 0
	for _, err := range doctor.List(ctx, l, doctor.ListOptions{}) {
		ok(t, err)
		if seen++; seen == 3 {
			break
		}
	}
}

// Pause is between two steps of the SCAN. The end of ctx ends it at once.
func TestListPause(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	rdb := redistest.Real(t).Client(t)
	pipe := rdb.Pipeline()
	for i := range 2000 {
		pipe.Set(t.Context(), fmt.Sprint("somebody's ", i), 1, 0)
	}
	_, err := pipe.Exec(t.Context())
	ok(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	s := &steps{UniversalClient: rdb, before: func(int) redis.UniversalClient { return nil }}
	l := listLocker(t, s, "p")
	const pause = 10 * time.Millisecond
	start := time.Now()
	listed(t, l, doctor.ListOptions{Pace: pause})
	if d := time.Since(start); s.n < 6 || d < time.Duration(s.n-1)*pause {
		t.Errorf("%d steps with pauses of %v took %v", s.n, pause, d)
	}
	s.n = 0
	s.before = func(int) redis.UniversalClient {
		time.AfterFunc(pause, func() { cancel(why) })
		return nil
	}
	for _, err := range doctor.List(ctx, l, doctor.ListOptions{Pace: time.Minute}) {
		if !errors.Is(err, why) || s.n != 1 {
			t.Errorf("%v after %d steps", err, s.n)
		}
	}
	if ctx.Err() == nil {
		t.Error("the list did not end with ctx")
	}
}

// A bad option, the end of ctx, a missing right and an unavailable server end List with one error.
func TestListErrors(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	l := listLocker(t, s.Client(t), "p")
	last := func(ctx context.Context, o doctor.ListOptions) (err error) {
		n := 0
		for _, err = range doctor.List(ctx, l, o) {
			n++
		}
		if n != 1 {
			t.Errorf("%d entries", n)
		}
		return err
	}
	if err := last(t.Context(), doctor.ListOptions{Kind: 9}); err == nil || errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("a bad kind: %v", err)
	}
	if err := last(t.Context(), doctor.ListOptions{Match: strings.Repeat("x", 513)}); err == nil || errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("a long pattern: %v", err)
	}
	for _, d := range []time.Duration{-1, time.Minute + 1} {
		if err := last(t.Context(), doctor.ListOptions{Pace: d}); err == nil || errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("a pause of %v: %v", d, err)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := last(ended, doctor.ListOptions{}); !errors.Is(err, why) {
		t.Errorf("ctx: %v", err)
	}
	ok(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-scan").Err())
	if err := last(t.Context(), doctor.ListOptions{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("no right: %v", err)
	}
	s.Stop()
	if err := last(t.Context(), doctor.ListOptions{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// listLocker returns a Locker with a prefix. The end of the test closes it with its leases held.
func listLocker(t *testing.T, rdb redis.UniversalClient, prefix string) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.New(rdb, lockcore.Options{Prefix: prefix})
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func must(le *lockcore.Lease, err error) *lockcore.Lease {
	if err != nil {
		panic(err)
	}
	return le
}

// oneNodeCluster returns a client of a Cluster of one node with all slots.
func oneNodeCluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	return clusterClient(t, clusterNode(t))
}

func clusterClient(t *testing.T, s *redistest.Server) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// clusterNode returns the only server of a Cluster.
func clusterNode(t *testing.T, args ...string) *redistest.Server {
	t.Helper()
	s := redistest.Real(t, slices.Concat([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000"}, args)...)
	rdb := s.Client(t)
	ok(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for rdb.ClusterInfo(t.Context()).Val() == "" || !strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
		if t.Context().Err() != nil {
			t.Fatal("the cluster does not come up")
		}
	}
	return s
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
