package lockcore

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/backend/redis/cleanup"
)

// MaxCleanups is the number of unconfirmed cleanups above which requests for new keys wait.
const MaxCleanups = cleanup.MaxCleanups

// PileUp puts n withdrawals into the cleanup queue.
func PileUp(l *Locker, n int) {
	for i := range n {
		key := l.backend.Key(backend.KindExclusive, fmt.Sprint("pile", i))
		l.backend.Withdraw(backend.WithdrawRequest{Key: &key, ID: rand.Text(), Retention: freeTTL})
	}
	l.backend.Report()
}

// Cleanups returns how many withdrawals and releases are not confirmed.
func Cleanups(l *Locker) int {
	return l.backend.(*redis.Backend).Unconfirmed() //nolint:errcheck,forcetypeassert // tests that call it use Redis
}

// SendOnce sends one acquire like a call does, and does not repeat it.
func SendOnce(ctx context.Context, l *Locker, name string) error {
	key := l.backend.Key(backend.KindExclusive, name)
	_, err := l.backend.Acquire(ctx, backend.AcquireRequest{Key: &key, ID: rand.Text(), Lease: time.Second, Retention: time.Second, Timeout: time.Second})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// ForgedTicket returns a ticket of a key with a token and an id that no grant has.
func ForgedTicket(l *Locker, kind Kind, name string, token int64) string {
	key := l.backend.Key(backend.Kind(kind), name)
	return writeTicket(&key, ticketData{id: rand.Text(), token: token, keep: time.Minute})
}

// NewMemories returns n Lockers in memory whose keys are in one Space.
func NewMemories(n int, o Options) ([]*Locker, error) {
	space, err := memory.NewSpace(0)
	if err != nil {
		return nil, err
	}
	all := make([]*Locker, n)
	for i := range all {
		all[i], err = newLocker(o, func(common backend.Options) (backend.Backend, error) {
			return memory.New(memory.Options{Options: common, Space: space})
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
