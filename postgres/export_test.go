package postgres

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
)

// NewBackend returns the backend of a Locker.
func NewBackend(pool *pgxpool.Pool, common backend.Options, o Options) (backend.Backend, error) {
	s, err := open(pool, o)
	if err != nil {
		return nil, err
	}
	return rows.New(rows.Options{Options: common, Name: "postgres", Store: s}), nil
}

// NewStore returns the store of a Locker.
func NewStore(pool *pgxpool.Pool, o Options) (rows.Store, error) { return newStore(pool, o) }
