package memory_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// world returns a World in memory. Its Lockers share one space of keys.
func world(t *testing.T) backendtest.World {
	t.Helper()
	space, err := memory.NewSpace(0)
	if err != nil {
		t.Fatal(err)
	}
	return backendtest.World{Backend: func(locker string) backend.Backend {
		b, err := memory.New(memory.Options{Options: backend.Options{Locker: locker}, Space: space})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}}
}

// The backend in memory conforms in virtual time.
// Shows: M2
func TestConformance(t *testing.T) { backendtest.RunInBubble(t, world) }

// The backend in memory conforms in real time.
// Shows: M2
func TestConformanceInRealTime(t *testing.T) {
	testlevel.Full(t)
	backendtest.Run(t, world)
}
