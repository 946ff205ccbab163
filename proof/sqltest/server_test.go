//go:build unix

package sqltest_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/holdfast-go/holdfast/sqlonce"
)

const startTime = time.Minute

// server is a database server. The first test that needs it starts it, and TestMain stops it. It
// does not outlive the tests, even if they are killed.
type server struct {
	dialect  fence.SQL
	programs []string // the first one is the server
	make     string   // shell command that initializes the folder $1
	run      string   // arguments of the server for the folder $DIR
	env      string   // of the server
	stopBy   syscall.Signal
	driver   string
	dsn      func(dir, database string) string

	start func() error // once
	dir   string
	admin *sql.DB
	stop  func()
	bases atomic.Int64
}

var postgres = &server{
	dialect:  fence.Postgres,
	programs: []string{"postgres", "initdb"},
	make:     `exec initdb --no-sync --auth=trust --username=postgres --locale=C --encoding=UTF8 --pgdata="$1/data"`,
	run:      "-D $DIR/data -k $DIR -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=16MB",
	stopBy:   syscall.SIGQUIT, // stops at once, together with the child processes
	driver:   "pgx",
	dsn:      func(dir, database string) string { return "host=" + dir + " user=postgres dbname=" + database },
}

var mariadb = &server{
	dialect:  fence.MySQL,
	programs: []string{"mariadbd", "mariadb-install-db"},
	make:     `exec mariadb-install-db --no-defaults --skip-test-db --auth-root-authentication-method=normal --datadir="$1/data"`,
	run: "--no-defaults --datadir=$DIR/data --socket=$DIR/socket --pid-file=$DIR/pid --skip-networking --skip-log-bin --innodb-flush-log-at-trx-commit=0 " +
		"--innodb-flush-method=nosync --innodb-buffer-pool-size=32M",
	env:    "TZ=CET-1CEST,M3.5.0,M10.5.0/3", // central Europe, with daylight saving time
	stopBy: syscall.SIGKILL,
	driver: "mysql",
	dsn: func(dir, database string) string {
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = "root", "unix", dir+"/socket", strings.TrimPrefix(database, "postgres")
		return c.FormatDSN()
	},
}

// sqlite needs no program: each database is a file.
var sqlite = &server{
	dialect: fence.SQLite,
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
	for _, p := range s.programs {
		if _, err := lookPath(p); err != nil {
			if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
				t.Fatalf("%v, and CI is true", err)
			}
			t.Skip(err)
		}
	}
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

// begin creates a folder, lets the server initialize it, starts the server, and waits until it
// replies.
func (s *server) begin() (err error) {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		return err
	}
	s.dir = dir
	s.stop = func() { _ = os.RemoveAll(dir) }
	if len(s.programs) == 0 {
		return nil
	}
	as, err := owner(dir)
	if err != nil {
		return err
	}
	path, _ := lookPath(s.programs[1])
	fill := exec.Command("sh", "-c", `PATH="$2:$PATH"; `+s.make, "sh", dir, filepath.Dir(path)) //nolint:noctx // it ends
	fill.SysProcAttr, fill.Dir = as, dir
	if out, err := fill.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", s.programs[1], err, out)
	}
	path, _ = lookPath(s.programs[0])
	var said bytes.Buffer
	cmd := exec.Command(path, strings.Fields(strings.ReplaceAll(s.run, "$DIR", dir))...) //nolint:noctx // it lives until stop
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = as, dir, &said, &said
	cmd.Env = append(os.Environ(), s.env)
	if err := cmd.Start(); err != nil {
		return err
	}
	alive, guard, err := watch(cmd.Process.Pid, s.stopBy, dir)
	s.stop = func() {
		if s.admin != nil {
			_ = s.admin.Close()
		}
		_ = cmd.Process.Signal(s.stopBy)
		_ = cmd.Wait()
		if guard != nil {
			_ = guard.Process.Kill() // before its pipe closes; otherwise it would kill a process id that may belong to another process by now
			_ = alive.Close()
			_ = guard.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	if err == nil {
		err = s.await()
	}
	if err != nil {
		s.stop()
		s.stop = nil
		return fmt.Errorf("%s: %w\n%s", path, err, said.String())
	}
	return nil
}

func (s *server) await() (err error) {
	if s.admin, err = sql.Open(s.driver, s.dsn(s.dir, "postgres")); err != nil {
		return err
	}
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = s.admin.PingContext(context.Background()); err == nil {
			return nil
		}
	}
	return err
}

// watch starts a process that stops the server and removes its folder if the test process dies
// first, for example at the timeout of go test.
func watch(pid int, by syscall.Signal, dir string) (io.Closer, *exec.Cmd, error) {
	const script = `read _; kill -"$1" "$2"; for i in 1 2 3 4 5 6 7 8 9; do sleep 1; rm -rf "$3" && exit; done` // the children of the server still write
	guard := exec.Command("sh", "-c", script, "sh", strconv.Itoa(int(by)), strconv.Itoa(pid), dir)              //nolint:noctx // as above
	in, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, nil, err
	}
	return in, guard, nil
}

// owner makes dir the property of the user that the servers run as, if the tests run as root, which
// the servers refuse. That is the user postgres, or the system user nobody.
func owner(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, int(uid), int(gid))
	}
	return nil, fmt.Errorf("no user to run a server as")
}

// lookPath also searches the folders of Debian for PostgreSQL, and prefers the newest version.
func lookPath(program string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) > 0 {
		return slices.Max(found), nil
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + program)
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
