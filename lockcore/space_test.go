package lockcore_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
)

// space makes Lockers in memory, as processes that share their keys.
type space struct {
	world // without a server
	make  func(lockcore.Options) (*lockcore.Locker, error)
}

func newSpace(t *testing.T) *space {
	t.Helper()
	locker, err := lockcore.NewSpace()
	ok(t, err)
	return &space{world{T: t}, locker}
}

// Locker returns a Locker that is closed when the test ends.
func (s *space) Locker(o lockcore.Options) *lockcore.Locker {
	s.T.Helper()
	l, err := s.make(o)
	ok(s.T, err)
	s.T.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			s.T.Errorf("Close: %v", err)
		}
	})
	return l
}
