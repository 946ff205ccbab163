package security_test

import (
	"context"
	"errors"
	"fmt"
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

// setUser creates a user with only these rights, and empties the ACL log.
func setUser(t *testing.T, s *redistest.Server, rules string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "job", "reset", "on", ">pw"}
	for rule := range strings.FieldsSeq(rules) {
		args = append(args, rule)
	}
	check(t, s.Client(t).Do(t.Context(), args...).Err())
	check(t, s.Client(t).Do(t.Context(), "ACL", "LOG", "RESET").Err())
}

// denials returns what was denied to the user of setUser since then.
func denials(t *testing.T, s *redistest.Server) (names []string) {
	t.Helper()
	log, err := s.Client(t).ACLLog(t.Context(), 128).Result()
	check(t, err)
	for _, e := range log {
		if e.Username == "job" && e.Object != "client|setinfo" { // Redis 7.2 and later have this command; go-redis continues if it is denied
			names = append(names, e.Object)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func asJob(o *redis.Options) { o.Username, o.Password = "job", "pw" }

const (
	leastRights = redistest.Keys + " " + redistest.Channels + " " + redistest.Commands
	ofList      = " +scan +info"
)

// With the published rights, nothing that a Locker does is denied. Without any one of them, that
// right is denied by its name. So the list is neither too short nor too long.
// Shows: X3
func TestRightsAreLeast(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	run := func(t *testing.T, rules string, hold time.Duration) ([]string, error) {
		s := redistest.Real(t)
		setUser(t, s, rules)
		err := life(t, s.Client(t, asJob), hold)
		return denials(t, s), err
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		if denied, err := run(t, leastRights+ofList, 3500*time.Millisecond); err != nil || len(denied) > 0 {
			t.Errorf("denied: %q, %v", denied, err)
		}
	})
	for right := range strings.FieldsSeq(leastRights + ofList) {
		if right == "-@all" || right == "resetchannels" || right == "+unsubscribe" { // a Locker does not send UNSUBSCRIBE today, but a version of go-redis that ends its subscriptions does
			continue
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			hold := time.Second // long enough for a renewal
			if right == "+ping" {
				hold = 3500 * time.Millisecond
			}
			fewer := slices.DeleteFunc(strings.Fields(leastRights+ofList), func(r string) bool { return r == right })
			denied, _ := run(t, strings.Join(fewer, " "), hold)
			if len(denied) == 0 || right[0] == '+' && !slices.Equal(denied, []string{right[1:]}) {
				t.Errorf("without %s these are denied: %q", right, denied)
			}
		})
	}
}

// On a majority of servers a Locker also needs INFO, and CONFIG GET to see appendfsync always. Nothing
// else is denied.
// Shows: X3
func TestRightsOfQuorum(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for rules, want := range map[string][]string{" +scan +info +config|get": nil, " +scan +info": {"config|get"}, " +scan +config|get": {"info"}} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			var servers []*redistest.Server
			var masters []*redis.Client
			for range 3 {
				s := redistest.Real(t, "--appendonly", "yes", "--appendfsync", "always")
				setUser(t, s, leastRights+rules)
				servers, masters = append(servers, s), append(masters, s.Client(t, asJob))
			}
			locker := func() *lockcore.Locker {
				l, err := lockcore.NewQuorum(masters, lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second, Wait: 5 * time.Second}})
				check(t, err)
				t.Cleanup(func() { _ = l.Close(context.Background()) })
				return l
			}
			a, b := locker(), locker()
			err := turns(t.Context(), a, b, 1500*time.Millisecond) // longer than a third of a lease: it is renewed
			if err == nil {
				err = errors.Join(revoke(t.Context(), a, b), force(t.Context(), a, b))
				for _, listed := range doctor.List(t.Context(), a, doctor.ListOptions{}) {
					err = errors.Join(err, listed)
				}
			}
			if info := slices.Contains(want, "info"); (err != nil) != info || info && !strings.Contains(err.Error(), "INFO: NOPERM") {
				t.Errorf("%v", err)
			}
			for _, s := range servers {
				if denied := denials(t, s); !slices.Equal(denied, want) {
					t.Errorf("denied: %q, want %q", denied, want)
				}
			}
		})
	}
}

// life does everything that Lockers do: two of them take turns, renew, give up, complete, replay,
// revoke, force, park, list and clear. It ends with the first error.
func life(t *testing.T, rdb redis.UniversalClient, hold time.Duration) error {
	t.Helper()
	ctx := t.Context()
	terms := lockcore.Terms{Lease: 2 * time.Second, Wait: hold + 3*time.Second}
	a, b := newLocker(t, rdb, lockcore.Options{Terms: terms}), newLocker(t, rdb, lockcore.Options{Terms: terms})
	for _, part := range []func(context.Context, *lockcore.Locker, *lockcore.Locker) error{
		func(ctx context.Context, a, b *lockcore.Locker) error { return turns(ctx, a, b, hold) }, once, revoke, force, park,
		func(ctx context.Context, a, _ *lockcore.Locker) (err error) {
			for _, err = range doctor.List(ctx, a, doctor.ListOptions{}) {
			}
			return err
		},
		func(ctx context.Context, a, b *lockcore.Locker) error { return errors.Join(a.Close(ctx), b.Close(ctx)) },
	} {
		if err := part(ctx, a, b); err != nil {
			return err
		}
	}
	return nil
}

// turns renews a key while another process waits for it and one call gives up, and then passes it
// on.
func turns(ctx context.Context, a, b *lockcore.Locker, hold time.Duration) error {
	le, err := a.Acquire(ctx, "k", lockcore.Terms{})
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		le, err := b.Acquire(ctx, "k", lockcore.Terms{})
		if err == nil {
			err = le.Release(ctx)
		}
		waited <- err
	}()
	time.Sleep(hold) // renewals and pings happen meanwhile
	if _, err := b.Acquire(ctx, "k", lockcore.Terms{Wait: 50 * time.Millisecond}); !errors.Is(err, lockcore.ErrBusy) {
		return fmt.Errorf("busy: %w", err)
	}
	err = le.Release(ctx)
	return errors.Join(err, <-waited, alone(ctx, a, b))
}

// alone waits for a key without success, so its request is removed from the queue.
func alone(ctx context.Context, a, b *lockcore.Locker) error {
	le, err := a.Acquire(ctx, "v", lockcore.Terms{})
	if err != nil {
		return err
	}
	if _, err := b.Acquire(ctx, "v", lockcore.Terms{Wait: 50 * time.Millisecond}); !errors.Is(err, lockcore.ErrBusy) {
		return fmt.Errorf("give up: %w", err)
	}
	return le.Release(ctx)
}

// revoke revokes a hold, and checks that its holder is notified.
func revoke(ctx context.Context, a, b *lockcore.Locker) error {
	le, err := a.Acquire(ctx, "r", lockcore.Terms{})
	if err != nil {
		return err
	}
	if err := b.Revoke(ctx, event.KindExclusive, "r"); err != nil {
		return err
	}
	select {
	case <-le.Context().Done():
	case <-time.After(5 * time.Second): // without the message, the next renewal finds the revocation after a second
		return errors.New("the holder was not notified")
	}
	_ = le.Release(ctx) // it returns ErrRevoked
	return nil
}

// park parks a task on a key, wakes it and removes it.
func park(ctx context.Context, a, b *lockcore.Locker) error {
	le, err := a.Acquire(ctx, "p", lockcore.Terms{})
	if err != nil {
		return err
	}
	hidden := access.Of(b).Backend
	key := hidden.Key(backend.KindExclusive, "p")
	parked, err := hidden.Park(ctx, backend.ParkRequest{Key: &key, Entry: "1", Most: 1, Keep: time.Minute})
	if err == nil && parked.Outcome != backend.Parked {
		err = fmt.Errorf("parked: %+v", parked)
	}
	_, err2 := hidden.CallParkingLocker(ctx, &key)
	woken, err3 := hidden.Unpark(ctx, backend.UnparkRequest{Key: &key, Woken: 1})
	if err3 == nil && !slices.Equal(woken.Wake, []string{"1"}) {
		err3 = fmt.Errorf("woken: %+v", woken)
	}
	_, err4 := hidden.Unpark(ctx, backend.UnparkRequest{Key: &key, Remove: []string{"1"}})
	return errors.Join(err, err2, err3, err4, le.Release(ctx))
}

// force ends the lease of a living holder.
func force(ctx context.Context, a, b *lockcore.Locker) error {
	le, err := a.Acquire(ctx, "forced", lockcore.Terms{})
	if err != nil {
		return err
	}
	h, err := b.Inspect(ctx, event.KindExclusive, "forced")
	if err == nil {
		err = b.ForceClearEvenAlive(ctx, event.KindExclusive, "forced", h)
	}
	if err != nil {
		return errors.Join(err, le.Release(ctx))
	}
	<-le.Context().Done()
	return nil
}

// once completes a key that another call waits for, inspects it, replays it and clears it.
func once(ctx context.Context, a, b *lockcore.Locker) error {
	le, _, err := a.Claim(ctx, "o", lockcore.Claim{})
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		_, rec, err := b.Claim(ctx, "o", lockcore.Claim{})
		if err == nil && rec == nil {
			err = errors.New("the key ran twice")
		}
		waited <- err
	}()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if h, err := a.Inspect(ctx, event.KindOnce, "o"); err != nil || h.Queue > 0 {
			break
		}
	}
	err = le.Complete(ctx, []byte("record"), time.Minute)
	h, look := a.Inspect(ctx, event.KindOnce, "o")
	if rec := h.Record; look == nil && (rec == nil || string(rec.Data) != "record") {
		look = fmt.Errorf("looked at %v", rec)
	}
	return errors.Join(err, look, <-waited, a.Clear(ctx, event.KindOnce, "o"))
}

const clusterRights = leastRights + ofList + " +cluster|slots +asking"

// With the rights that a Locker in a Cluster needs, nothing is denied.
func TestRightsInACluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t, "--cluster-enabled", "yes")
	formCluster(t, s)
	setUser(t, s, clusterRights)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}, Username: "job", Password: "pw"})
	defer func() { _ = rdb.Close() }()
	err := life(t, rdb, time.Second)
	if denied := denials(t, s); err != nil || len(denied) > 0 {
		t.Errorf("denied: %q, %v", denied, err)
	}
}

// formCluster makes a Cluster of one server.
func formCluster(t *testing.T, s *redistest.Server) {
	t.Helper()
	admin := s.Client(t)
	check(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the cluster is not ready")
		}
	}
}

// With HOLDFAST_TEST_ACL, the Lockers of each test, and no other client, have the published rights.
// A denied command fails the test.
// Shows: X3
func TestSuiteUnderLeastRights(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_ACL", "1")
	rec := &recorder{TB: t}
	s := redistest.Real(rec)
	rdb := s.Client(t)
	check(t, life(t, rdb, 100*time.Millisecond))
	a := newLocker(t, rdb, lockcore.Options{})
	le, err := a.Acquire(t.Context(), "k", noWait)
	check(t, err)
	users := map[string]int{}
	for client := range strings.SplitSeq(rdb.ClientList(t.Context()).Val(), "\n") {
		for field := range strings.FieldsSeq(client) {
			if user, ok := strings.CutPrefix(field, "user="); ok {
				users[user]++
			}
		}
	}
	if users[redistest.LeastUser] == 0 || users["default"] == 0 || len(users) != 2 {
		t.Errorf("connections by user: %v", users)
	}
	check(t, rdb.Do(t.Context(), "ACL", "SETUSER", redistest.LeastUser, "-del").Err())
	_ = le.Release(t.Context()) // a release that fails is only counted
	s.Stop()
	if len(rec.failures) != 1 || !strings.Contains(rec.failures[0], "del") {
		t.Errorf("the test failed with %q", rec.failures)
	}
}

// recorder is a test that records its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
