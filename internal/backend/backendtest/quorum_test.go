package backendtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/quorum"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// differs has the cases that a majority of servers does not pass, and why.
var differs = map[string]string{
	"a released key is reserved for the first waiter":              "the home alone reserves it, and the others can grant it to another process",
	"the end of a pause gives the key to the first waiter":         "likewise",
	"a waiter that gives up leaves the reservation of another one": "likewise",
	"Clear keeps a reservation":                                    "likewise",
	"a repeat of release and acquire gets the same grant":          "it also says that the hold has ended",
}

// refusing skips the case of its test when the backend does not support an operation.
type refusing struct {
	backend.Backend
	t       *testing.T
	refused map[string]int // number of cases by error
}

func (r refusing) see(err error) {
	if errors.Is(err, backend.ErrUnsupported) {
		r.refused[err.Error()]++
		r.t.Skip()
	}
}

func (r refusing) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := r.Backend.Acquire(ctx, q)
	synctest.Wait() // until the request has arrived at all of them
	r.see(err)
	return reply, err
}

func (r refusing) Renew(ctx context.Context, qs []backend.RenewRequest) []backend.RenewReply {
	defer synctest.Wait()
	return r.Backend.Renew(ctx, qs)
}

func (r refusing) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	defer synctest.Wait()
	return r.Backend.Release(ctx, q)
}

func (r refusing) Extend(ctx context.Context, q backend.RenewRequest) (backend.RenewReply, time.Time) {
	reply, sent := r.Backend.Extend(ctx, q)
	synctest.Wait()
	r.see(reply.Err)
	return reply, sent
}

func (r refusing) Spend(ctx context.Context, k *backend.Key, rate backend.Rate) error {
	err := r.Backend.Spend(ctx, k, rate)
	r.see(err)
	return err
}

func (r refusing) Restrict(ctx context.Context, k *backend.Key, q backend.Restriction) error {
	err := r.Backend.Restrict(ctx, k, q)
	r.see(err)
	return err
}

func (r refusing) Adopt(ctx context.Context, q backend.AdoptRequest) (backend.AdoptReply, error) {
	reply, err := r.Backend.Adopt(ctx, q)
	r.see(err)
	return reply, err
}

func (r refusing) Park(ctx context.Context, q backend.ParkRequest) (backend.ParkReply, error) {
	reply, err := r.Backend.Park(ctx, q)
	r.see(err)
	return reply, err
}

func (r refusing) Unpark(ctx context.Context, q backend.UnparkRequest) (backend.UnparkReply, error) {
	reply, err := r.Backend.Unpark(ctx, q)
	r.see(err)
	return reply, err
}

func (r refusing) CallParkingLocker(ctx context.Context, k *backend.Key) (int, error) {
	n, err := r.Backend.CallParkingLocker(ctx, k)
	r.see(err)
	return n, err
}

func (r refusing) Order(ctx context.Context, q backend.TriggerRequest) (backend.TriggerReply, error) {
	reply, err := r.Backend.Order(ctx, q)
	r.see(err)
	return reply, err
}

func (r refusing) Revoke(ctx context.Context, q backend.RevokeRequest) (bool, error) {
	revoked, err := r.Backend.Revoke(ctx, q)
	r.see(err)
	return revoked, err
}

// Listen reports one subscription when all three are up.
func (r refusing) Listen(ctx context.Context, on func(backend.Notification)) {
	up := 0
	r.Backend.Listen(ctx, func(n backend.Notification) {
		if n.Event == backend.EventSubscribed {
			if up++; up != 3 {
				return
			}
		}
		on(n)
	})
}

// A majority of three backends in memory conforms, except for what it refuses and what differs.
// Shows: P7
func TestQuorum(t *testing.T) {
	testlevel.InMemory(t)
	refused, passed := map[string]int{}, 0
	backendtest.RunInBubble(t, func(t *testing.T) backendtest.World {
		if why := differs[strings.ReplaceAll(strings.TrimPrefix(t.Name(), "TestQuorum/"), "_", " ")]; why != "" {
			t.Skip(why)
		}
		t.Cleanup(func() {
			if !t.Skipped() {
				passed++
			}
		})
		var spaces [3]*memory.Space
		for i := range spaces {
			space, err := memory.NewSpace(0)
			if err != nil {
				t.Fatal(err)
			}
			spaces[i] = space
		}
		return backendtest.World{Backend: func(locker string) backend.Backend {
			masters := make([]quorum.Master, len(spaces))
			for i, space := range spaces {
				b, err := memory.New(memory.Options{Options: backend.Options{Locker: locker}, Space: space})
				if err != nil {
					t.Fatal(err)
				}
				masters[i] = b
			}
			return refusing{quorum.New(masters, quorum.NewServers([]string{"a", "b", "c"}, time.Hour, nil)), t, refused}
		}}
	})
	for _, what := range []string{"once keys: use one Redis, or package sqlonce", "shares: use one Redis", "rates: use one Redis", "restrictions: use one Redis", "tickets: use one Redis", "parking: use one Redis", "the order of triggers: use one Redis"} {
		text := "lockcore: unsupported on a majority of servers: " + what
		if refused[text] == 0 {
			t.Errorf("no case is refused with %q", text)
		}
		delete(refused, text)
	}
	if len(refused) > 0 || passed < 55 {
		t.Errorf("%d cases passed; others were refused with %v", passed, refused)
	}
	t.Logf("%d cases passed", passed)
}
