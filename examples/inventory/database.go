package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/sqlonce"
)

const connections = 16

// database is a new SQLite file, schema or database that only this program uses.
type database struct {
	dialect fence.SQL
	driver  string
	dsn     string
	db      *sql.DB
}

// connect opens an existing database.
func connect(dialect fence.SQL, dsn string) (*database, error) {
	driver := map[fence.SQL]string{fence.Postgres: "pgx", fence.MySQL: "mysql", fence.SQLite: "sqlite"}[dialect]
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &database{dialect, driver, dsn, db}, nil
}

// newDatabase creates a database called name. remove deletes it with all its data.
func newDatabase(ctx context.Context, address, name string) (d *database, remove func() error, err error) {
	switch {
	case address == "":
		dir, err := os.MkdirTemp("", name)
		if err != nil {
			return nil, nil, err
		}
		d, err = connect(fence.SQLite, "file:"+filepath.ToSlash(filepath.Join(dir, "shop.db"))+
			"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
		if err != nil {
			return nil, nil, errors.Join(err, os.RemoveAll(dir))
		}
		return d, func() error { return errors.Join(d.db.Close(), os.RemoveAll(dir)) }, nil
	case strings.HasPrefix(address, "postgres://"), strings.HasPrefix(address, "postgresql://"):
		u, err := url.Parse(address)
		if err != nil {
			return nil, nil, errors.New("-db is not a URL") // the error of Parse would show the password
		}
		q := u.Query()
		q.Set("search_path", name)
		u.RawQuery = q.Encode()
		return createOnServer(ctx, fence.Postgres, address, u.String(), "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE")
	case strings.HasPrefix(address, "mysql://"):
		dsn := strings.TrimPrefix(address, "mysql://")
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, nil, errors.New("-db: after mysql:// must be USER:PASSWORD@tcp(HOST:PORT)/") // the error could show the password
		}
		cfg.DBName = name
		return createOnServer(ctx, fence.MySQL, dsn, cfg.FormatDSN(), "CREATE DATABASE "+name, "DROP DATABASE "+name)
	}
	return nil, nil, errors.New("-db must begin with postgres:// or mysql://") // it may have a password anywhere
}

// createOnServer creates a schema or database on a server, through dsn, and connects to it, through
// own.
func createOnServer(ctx context.Context, dialect fence.SQL, dsn, own, create, drop string) (d *database, remove func() error, err error) {
	admin, err := connect(dialect, dsn)
	if err != nil {
		return nil, nil, err
	}
	if _, err := admin.db.ExecContext(ctx, create); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("-db: %s: %w", create, err), admin.db.Close())
	}
	removeOnly := func() error {
		_, err := admin.db.ExecContext(context.WithoutCancel(ctx), drop)
		return errors.Join(err, admin.db.Close())
	}
	if d, err = connect(dialect, own); err != nil {
		return nil, nil, errors.Join(err, removeOnly())
	}
	return d, func() error { return errors.Join(d.db.Close(), removeOnly()) }, nil
}

// fill creates new tables and divides the units among the rows.
func (d *database) fill(ctx context.Context, units, rows int) error {
	texts := []string{
		`DROP TABLE IF EXISTS stock`, `DROP TABLE IF EXISTS orders`, `DROP TABLE IF EXISTS holdfast_once`, `DROP TABLE IF EXISTS holdfast_fence`,
		`CREATE TABLE stock (id INT PRIMARY KEY, units INT NOT NULL, version INT NOT NULL DEFAULT 0)`,
		`CREATE TABLE orders (buyer INT NOT NULL)`, `CREATE INDEX orders_buyer ON orders (buyer)`,
		sqlonce.Create(d.dialect), d.dialect.Create(),
	}
	for row := range rows {
		share := units / rows
		if row < units%rows {
			share++
		}
		texts = append(texts, fmt.Sprintf(`INSERT INTO stock (id, units) VALUES (%d, %d)`, row, share))
	}
	for _, text := range texts {
		if _, err := d.db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}
