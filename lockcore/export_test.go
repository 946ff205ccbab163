package lockcore

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/quorum"
)

// ForgedTicket returns a ticket of a key with a token and an id that no grant has.
func ForgedTicket(l *Locker, kind event.Kind, name string, token int64) string {
	key := l.backend.Key(backend.Kind(kind), name)
	return writeTicket(&key, ticketData{id: rand.Text(), token: token, keep: time.Minute})
}

// NewSpace returns a function that makes Lockers in memory, which share their keys.
func NewSpace() (func(Options) (*Locker, error), error) {
	space, err := memory.NewSpace(0)
	if err != nil {
		return nil, err
	}
	return func(o Options) (*Locker, error) {
		return newLocker(o.Terms, o.Observer, func(common backend.Options) (backend.Backend, error) {
			return memory.New(memory.Options{Options: common, Space: space})
		})
	}, nil
}

// NewOnMasters returns a Locker on a majority of n masters, which the function master makes.
func NewOnMasters(o Options, n int, master func(i int, o backend.Options) quorum.Master) (*Locker, error) {
	return newLocker(o.Terms, o.Observer, func(common backend.Options) (backend.Backend, error) {
		masters, names := make([]quorum.Master, n), make([]string, n)
		for i := range masters {
			masters[i], names[i] = master(i, common), fmt.Sprint("server ", i)
		}
		return quorum.New(masters, quorum.NewServers(names, longestLease(o.Terms), common.Server)), nil
	})
}

// ObserverPanics returns how many panics of the Observer l has recovered.
func ObserverPanics(l *Locker) int64 { return l.panics.Load() }
