//go:build unix

package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/postgres"
)

func world(t *testing.T, pool *pgxpool.Pool, o postgres.Options) backendtest.World {
	t.Helper()
	return backendtest.World{Backend: func(locker string) backend.Backend {
		b, err := postgres.NewBackend(pool, backend.Options{Locker: locker, Closing: make(chan struct{}), CleanupsFailed: func(int, error) {}}, o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}}
}

// The backend on a real server conforms.
// Shows: M2, P8
func TestConformance(t *testing.T) {
	testlevel.Full(t)
	pool := database(t)
	backendtest.Run(t, func(t *testing.T) backendtest.World {
		t.Helper()
		return world(t, pool, postgres.Options{})
	})
}
