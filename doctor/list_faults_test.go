package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// steps is a client that calls before for each pipeline of a list. n counts from 1.
type steps struct {
	redis.UniversalClient
	before func(n int) redis.UniversalClient // nil: the client itself
	n      int
}

func (s *steps) Pipeline() redis.Pipeliner {
	s.n++
	if other := s.before(s.n); other != nil {
		return other.Pipeline()
	}
	return s.UniversalClient.Pipeline()
}

// holdMany acquires n keys.
func holdMany(t *testing.T, rdb redis.UniversalClient, n int) {
	t.Helper()
	l := listLocker(t, rdb, "p")
	for i := range n {
		must(l.AcquireFixed(t.Context(), fmt.Sprint(i), lockcore.Terms{Wait: time.Minute, Lease: time.Hour}))
	}
}

// If another server with the same keys takes the place of the one that is listed, List ends with an
// error about that. If INFO is refused, List works without that check.
// Shows: D3
func TestListOverFailover(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const keys = 2500
	primary, replica := redistest.Real(t), redistest.Real(t)
	for _, s := range []*redistest.Server{primary, replica} {
		holdMany(t, s.Client(t), keys)
	}
	once := func(t *testing.T, at int, before, after redis.UniversalClient) (seen int, err error) {
		s := &steps{UniversalClient: before, before: func(n int) redis.UniversalClient {
			if n >= at {
				return after
			}
			return nil
		}}
		l := listLocker(t, s, "p")
		all := map[string]bool{}
		for e, end := range doctor.List(t.Context(), l, doctor.ListOptions{}) {
			if err = end; err == nil {
				all[e.Key] = true
			}
		}
		if s.n < at && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("inconclusive: %d round trips", s.n)
		}
		return len(all), err
	}
	list := func(t *testing.T, at int, before, after redis.UniversalClient) (seen int, err error) {
		for range 4 {
			if err := primary.Client(t).ACLLogReset(t.Context()).Err(); err != nil { // only the last attempt counts
				t.Fatal(err)
			}
			if seen, err = once(t, at, before, after); !errors.Is(err, context.DeadlineExceeded) {
				break
			}
			t.Logf("repeated: a pause of the machine exceeded the one second of a round trip: %v", err)
		}
		return seen, err
	}
	for _, at := range []int{2, 7, 15} {
		n, err := list(t, at, primary.Client(t), replica.Client(t))
		if !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "another server") || n == 0 && at > 2 {
			t.Errorf("from round trip %d on: %d keys, %v", at, n, err)
		}
	}
	rules := least + " +scan ~p:2:* &p:2:wake:*"
	job := asUser(t, primary, rules)
	if n, err := list(t, 2, job, job); n != keys || err != nil {
		t.Errorf("without INFO: %d keys, %v", n, err)
	}
	log := primary.Client(t).ACLLog(t.Context(), 128).Val()
	if i := slices.IndexFunc(log, func(e *redis.ACLLogEntry) bool { return e.Object == "info" }); i < 0 || log[i].Count != 1 {
		t.Errorf("INFO was not refused exactly once: %v", log)
	}
	if _, err := list(t, 15, primary.Client(t), asUser(t, replica, rules)); err == nil {
		t.Error("the server was identified only at first, and List returned no error")
	}
}

// If the limit of calls under way prevents a round trip, List ends with an error. It omits no key
// silently.
// Shows: D3
func TestListHeldUp(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const limit = 256
	rdb := redistest.Real(t).Client(t)
	holdMany(t, rdb, 10)
	for at := 1; at <= 2; at++ { // 1: the names, 2: the keys
		release := make(chan struct{})
		var held atomic.Int64
		s := &steps{UniversalClient: heldUp{rdb, &held, release}}
		l := listLocker(t, s, "p")
		s.before = func(n int) redis.UniversalClient {
			if n == at {
				// A call whose ctx ends before its command is sent does not count in held, so the
				// loop starts more calls. The minute bounds the loop.
				for end := time.Now().Add(time.Minute); held.Load() < limit && time.Now().Before(end); {
					var all sync.WaitGroup
					for range limit - held.Load() {
						all.Go(func() {
							soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
							defer cancel()
							_, _ = l.Inspect(soon, event.KindOnce, "k")
						})
					}
					all.Wait()
				}
			}
			return nil
		}
		n, last := 0, error(nil)
		for _, last = range doctor.List(t.Context(), l, doctor.ListOptions{}) {
			n++
		}
		close(release)
		if n != 1 || !errors.Is(last, lockcore.ErrUnavailable) {
			t.Errorf("round trip %d: %d entries, the last with %v", at, n, last)
		}
	}
}

// heldUp is a client whose scripts ignore ctx and wait for release. It counts them.
type heldUp struct {
	redis.UniversalClient
	held    *atomic.Int64
	release chan struct{}
}

func (h heldUp) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	h.held.Add(1)
	<-h.release
	return redis.NewCmd(ctx)
}

// In a Cluster with a server that is down, List yields the keys of the other servers, and then an
// error that names the server.
func TestListWithoutANode(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	shards := redistest.Cluster(t)
	c := shards.Client(t)
	const keys = 60
	holdMany(t, c, keys)
	down := shards.Masters()[0]
	want := 0
	for i := range keys {
		if shards.Master(shards.Slot(fmt.Sprintf("{%d}", i))) != down {
			want++
		}
	}
	down.Stop()
	seen, last := map[string]bool{}, error(nil)
	for e, err := range doctor.List(t.Context(), listLocker(t, c, "p"), doctor.ListOptions{}) {
		if last = err; err == nil {
			seen[e.Key] = true
		}
	}
	if len(seen) != want || !errors.Is(last, lockcore.ErrUnavailable) || !strings.Contains(last.Error(), down.Addr()) {
		t.Errorf("%d keys, %v; want %d of %d keys and an error about %s", len(seen), last, want, keys, down.Addr())
	}
}

// late is a ctx whose deadline has passed, while its timer has not fired yet.
type late struct {
	context.Context //nolint:containedctx // late is a ctx itself
}

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// The deadline of ctx ends a command at the connection a moment before the timer of ctx fires. List
// does not report that as an unavailable server.
func TestListDeadline(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	l := listLocker(t, redistest.Real(t).Client(t), "p")
	for _, err := range doctor.List(late{t.Context()}, l, doctor.ListOptions{}) {
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	}
}
