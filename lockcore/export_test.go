package lockcore

import (
	"crypto/rand"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
)

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
