//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/sqlonce"
)

const startTime = time.Minute

// server is a database server. The first test that needs it starts it, and TestMain stops it. It
// does not outlive the tests, even if they are killed.
type server struct {
	dialect  fence.SQL
	programs []string // that it needs
	run      func(*server) error
	driver   string
	dsn      func(dir, database string) string

	start    func() error // once
	dir      string
	postgres *pgtest.Server
	admin    *sql.DB
	stop     func()
	bases    atomic.Int64
}

var postgres = &server{
	dialect:  fence.Postgres,
	programs: []string{"postgres", "initdb", "pg_isready"},
	run: func(s *server) (err error) {
		if s.postgres, err = pgtest.Start(pgtest.Fast); err == nil {
			s.dir, s.stop = s.postgres.Dir, s.postgres.Stop
		}
		return err
	},
	driver: "pgx",
	dsn:    func(dir, database string) string { return "host=" + dir + " user=postgres dbname=" + database },
}

var mariadb = &server{
	dialect:  fence.MySQL,
	programs: []string{"mariadbd", "mariadb-install-db"},
	run:      (*server).mariadb,
	driver:   "mysql",
	dsn: func(dir, database string) string {
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = "root", "unix", dir+"/socket", strings.TrimPrefix(database, "postgres")
		return c.FormatDSN()
	},
}

// sqlite needs no program: each database is a file.
var sqlite = &server{
	dialect: fence.SQLite,
	run:     (*server).folder,
	driver:  "sqlite",
	dsn: func(dir, database string) string {
		return "file:" + filepath.Join(dir, database) + "?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	},
}

func TestMain(m *testing.M) {
	servers := []*server{postgres, mariadb, sqlite}
	for _, s := range servers {
		s.start = sync.OnceValue(s.begin)
	}
	if args, child := os.LookupEnv(childEnv); child {
		if err := work(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	for _, s := range servers {
		if s.stop != nil {
			s.stop()
		}
	}
	os.Exit(code)
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, s *server)) {
	onServers(t, test)
	t.Run("sqlite", func(t *testing.T) { test(t, sqlite.need(t)) })
}

// onServers runs a test on each database that has a server.
func onServers(t *testing.T, test func(t *testing.T, s *server)) {
	t.Run("postgres", func(t *testing.T) { test(t, postgres.need(t)) })
	t.Run("mariadb", func(t *testing.T) { test(t, mariadb.need(t)) })
}

// need starts s if it does not run. Without its programs the test is skipped, or fails if CI is
// true.
func (s *server) need(t *testing.T) *server {
	t.Helper()
	pgtest.NeedOnly(t, s.programs...)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// open returns a new database with the tables of fence and sqlonce.
func (s *server) open(t *testing.T) *sql.DB {
	t.Helper()
	db, _ := s.openAs(t, "")
	return db
}

// openAs is open with settings at the end of the dsn. It also returns the dsn.
func (s *server) openAs(t *testing.T, settings string) (db *sql.DB, dsn string) {
	t.Helper()
	name := fmt.Sprintf("test%d", s.bases.Add(1))
	if s != sqlite {
		exec1(t, s.admin, "CREATE DATABASE "+name)
	}
	dsn = s.dsn(s.dir, name) + settings
	db, err := sql.Open(s.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for range 2 { // each instance does this when it starts
		exec1(t, db, s.dialect.Create())
		exec1(t, db, sqlonce.Create(s.dialect))
	}
	return db, dsn
}

// begin starts the server, and waits until it replies.
func (s *server) begin() error {
	err := s.run(s)
	if err == nil && s != sqlite {
		err = s.await()
	}
	if err != nil && s.stop != nil {
		s.stop()
		s.stop = nil
	}
	return err
}

func (s *server) await() (err error) {
	if s.admin, err = sql.Open(s.driver, s.dsn(s.dir, "postgres")); err != nil {
		return err
	}
	end := s.stop
	s.stop = func() { _ = s.admin.Close(); end() }
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = s.admin.PingContext(context.Background()); err == nil {
			return nil
		}
	}
	return err
}

// folder creates the folder of a server.
func (s *server) folder() (err error) {
	if s.dir, err = os.MkdirTemp("", "fence"); err == nil {
		s.stop = func() { _ = os.RemoveAll(s.dir) }
	}
	return err
}

// mariadb creates a folder, lets MariaDB initialize it, and starts the server.
func (s *server) mariadb() error {
	if err := s.folder(); err != nil {
		return err
	}
	as, err := pgtest.Owner(s.dir)
	if err != nil {
		return err
	}
	command := func(program, args string) *exec.Cmd {
		path, _ := pgtest.Path(program)
		cmd := exec.Command(path, strings.Fields("--no-defaults --datadir="+s.dir+"/data "+args)...) //nolint:noctx // it lives until stop
		cmd.SysProcAttr, cmd.Dir = as, s.dir
		cmd.Env = append(os.Environ(), "TZ=CET-1CEST,M3.5.0,M10.5.0/3") // central Europe, with daylight saving time
		return cmd
	}
	if out, err := command("mariadb-install-db", "--skip-test-db --auth-root-authentication-method=normal").CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	end, err := pgtest.Begin(command("mariadbd", "--socket="+s.dir+"/socket --pid-file="+s.dir+"/pid --skip-networking --skip-log-bin "+
		"--innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --innodb-buffer-pool-size=32M"), syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.stop = func() { end(syscall.SIGKILL); _ = os.RemoveAll(s.dir) }
	return nil
}

func exec1(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// sql replaces the only ? of a text, if any, by the placeholder of s.
func (s *server) sql(text string) string {
	if s.dialect == fence.Postgres {
		return strings.Replace(text, "?", "$1", 1)
	}
	return text
}
