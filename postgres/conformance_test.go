//go:build unix

package postgres_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/postgres"
)

// The backend on a real server conforms.
func TestConformance(t *testing.T) {
	testlevel.Full(t)
	pool := database(t)
	backendtest.Run(t, func(t *testing.T) backendtest.World {
		t.Helper()
		return backendtest.World{Backend: func(locker string) backend.Backend {
			b, err := postgres.NewBackend(pool, backend.Options{Locker: locker, Closing: make(chan struct{}), CleanupsFailed: func(int, error) {}}, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}}
	})
}
