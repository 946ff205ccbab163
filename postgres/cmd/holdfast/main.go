// Command holdfast shows and changes the keys of holdfast from a shell. It is the command
// github.com/holdfast-go/holdfast/cmd/holdfast with a driver for PostgreSQL:
//
//	holdfast doctor  -postgres 'host=db user=app dbname=app'
//	holdfast ls      -postgres postgres://app@db/app -schema locks
//	holdfast show    account:42
//	holdfast serve   -act
//
// HOLDFAST_POSTGRES is the default of -postgres. The command does all that it does with -redis, except
// that why does not look for tasks in a queue. Commands that change keys need the rights of a Locker; ls, show,
// why, watch and a serve without -act only those to read. docs/security.md lists both.
package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

func main() { cli.Main(open) }

func open(dsn, schema string, terms lockcore.Terms) (cli.Database, error) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return cli.Database{}, err
	}
	o := postgres.Options{Options: lockcore.Options{Terms: terms, Observer: event.Discard}, Schema: schema}
	locks, err := postgres.New(pool, o)
	if err != nil {
		pool.Close()
		return cli.Database{}, err
	}
	return cli.Database{
		Locks: locks,
		Check: func(ctx context.Context) ([]doctor.Finding, error) { return postgres.Check(ctx, pool, o) },
		Close: pool.Close,
	}, nil
}
