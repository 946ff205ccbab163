// Package cli is the command holdfast. It has two programs: cmd/holdfast, and postgres/cmd/holdfast in
// the module that has a driver for PostgreSQL.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The exit codes, see ends.
const (
	exitOK      = 0
	exitProblem = 1
	exitFailed  = 2
)

// shell is the environment of a command.
type shell struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // in is a terminal, so that a question can be asked
	getenv   func(string) string
	postgres Open // nil: this program has no driver
}

// Open opens a database of PostgreSQL for -postgres. It sends no command.
type Open func(dsn, schema string, terms lockcore.Terms) (Database, error)

// Database has what the commands use of a database.
type Database struct {
	Locks *lockcore.Locker
	Check func(context.Context) ([]doctor.Finding, error) // for the doctor
	Close func()                                          // after that of Locks
}

// Main runs the command and ends the process. postgres is nil if the program has no driver for PostgreSQL.
func Main(postgres Open) {
	info, err := os.Stdin.Stat()
	sh := &shell{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, postgres: postgres,
		terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
	}
	redis.SetLogger(silent{}) // an error is printed once, by run
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	code := sh.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const usage = `holdfast shows and changes the keys of holdfast in Redis or PostgreSQL.

Look:
  holdfast ls           list the keys that are not free
  holdfast show KEY     show who has a key, and all that is known of it
  holdfast why ID       say why a task (ID) or the calls of a key (its name) wait, and what ends that
  holdfast watch KEY    look each second, and print changes
  holdfast serve        serve all that as a web page, http://localhost:8321/

Act:
  holdfast revoke KEY   ask the handler that has a key to stop
  holdfast clear KEY    let a done or abandoned key run again; with -force: end the lease of a holder that has died
  holdfast pause KEY    let no call of a key begin for a time
  holdfast limit KEY    bound the calls of a key for a time
  holdfast wake KEY     wake the first parked task of a key

Other:
  holdfast doctor       check the server: findings, consequences, remedies
  holdfast key ID       compute the key of an HTTP request
  holdfast version      print the version

holdfast COMMAND -h shows an example, the flags, the exit codes and the environment.
`

// ends is the end of the help of a command.
const ends = `Exit codes:
  0  done
%s  2  bad arguments, not confirmed, no reply, or refused by the server
From the environment:
  HOLDFAST_REDIS              address or URL, if -redis is not given; default: REDIS_ADDR
                              with -quorum: 3, 5 or 7 of them with commas; in a URL %%2C is a comma
  HOLDFAST_REDIS_USER, HOLDFAST_REDIS_PASSWORD
  HOLDFAST_SENTINEL_USER, HOLDFAST_SENTINEL_PASSWORD
  HOLDFAST_POSTGRES           connection string, if neither -postgres nor -redis nor -sentinel is given; also PGPASSWORD, PGPASSFILE and so on
  HOLDFAST_HTTP_SECRET        for key, why and serve: httpmw's IdempotentOptions.Secret, if -secret-file is not given
`

// problems say when a command ends with exitProblem.
var problems = map[string]string{
	"doctor": "there are problems",
	"ls":     "-timeout or a signal ended the list early; the keys found so far were printed",
	"show":   "the key is free",
	"why":    "no task has that ID, and nothing is known of such a key",
	"revoke": "the key is not held, or has changed since it was shown",
	"clear":  "the key is free, held, or has changed since it was shown; -force: it is not held, or its holder lives",
	"pause":  "-end: the key is not paused",
	"limit":  "-end: the key is not restricted",
	"wake":   "the key has no parked tasks, or no process received the request",
}

// run executes the command and returns its exit code.
func (sh *shell) run(ctx context.Context, args []string) int {
	commands := map[string]func(context.Context, []string) (int, error){
		"doctor": sh.doctor, "ls": sh.ls, "show": sh.show, "revoke": sh.revoke,
		"clear": sh.clear, "why": sh.why, "watch": sh.watch, "serve": sh.serve, "pause": sh.pause, "limit": sh.limit, "wake": sh.wake, "key": sh.key, "version": sh.version,
	}
	if len(args) == 0 {
		fmt.Fprint(sh.err, usage)
		return exitFailed
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) > 1 {
			return sh.run(ctx, []string{args[1], "-h"})
		}
		fmt.Fprint(sh.out, usage)
		return exitOK
	}
	command := commands[args[0]]
	if command == nil {
		fmt.Fprintf(sh.err, "holdfast: no command %q\n\n%s", args[0], usage)
		return exitFailed
	}
	code, err := command(ctx, args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp): // help has been printed
		return exitOK
	case errors.As(err, new(flagError)): // package flag has printed it
		return exitFailed
	case err != nil:
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		fmt.Fprintf(sh.err, "holdfast %s: %v\n", args[0], operator.OneLine(strings.ReplaceAll(err.Error(), "\n", "; "))) // a joined error has several lines
		if h := new(hintedError); errors.As(err, h) {
			fmt.Fprintln(sh.err, h.say)
		}
		return exitFailed
	}
	return code
}

// flagError is an error in the flags that package flag has printed.
type flagError struct{ error }
