package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
)

// NewBackend returns the backend of a Locker.
func NewBackend(pool *pgxpool.Pool, common backend.Options, o Options) (backend.Backend, error) {
	return open(pool, common, o)
}

// NewStore returns a store of a Locker.
func NewStore(pool *pgxpool.Pool, o Options) (rows.Store, error) {
	return newStore(pool, o, pool.Config().MaxConns)
}

// CheckOpen is Check with another limit for open transactions.
func CheckOpen(ctx context.Context, pool *pgxpool.Pool, o Options, open time.Duration) ([]doctor.Finding, error) {
	return check(ctx, pool, o, open)
}
