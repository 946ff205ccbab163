// Command holdfast looks after the keys of holdfast from a shell: whether Redis is fit for them, who holds which, and taking one away.
//
//	holdfast doctor -redis localhost:6379
//	holdfast ls     -redis localhost:6379 -match 'account:*'
//	holdfast show   -redis localhost:6379 account:42
//	holdfast revoke -redis localhost:6379 account:42
//
// User and password come from the environment, see holdfast help. It does with Redis what a Locker does, and needs the same
// rights; ls also needs SCAN.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What the process ends with.
const (
	exitOK      = 0
	exitProblem = 1 // doctor: there are problems. show, revoke: nobody holds the key
	exitFailed  = 2 // it could not be done, or not be asked for like that
)

// shell is where the command was called.
type shell struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // in is one, with somebody who can be asked
	getenv   func(string) string
}

func main() {
	info, err := os.Stdin.Stat()
	sh := &shell{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv,
		terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
	}
	redis.SetLogger(silent{}) // what goes wrong is said once
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := sh.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const usage = `holdfast looks after the keys of holdfast in Redis.

  holdfast doctor [flags]                    is this Redis fit for it? What is wrong, what that means, what to do
  holdfast ls     [flags] [-match PATTERN]   which keys are not free, and why
  holdfast show   [flags] [-once] KEY        all that is known of one key
  holdfast revoke [flags] [-once] [-yes] KEY take a key away from its holder

holdfast COMMAND -h lists the flags. From the environment:
  HOLDFAST_REDIS              address or URL, where -redis is not given; without it REDIS_ADDR
  HOLDFAST_REDIS_USER, HOLDFAST_REDIS_PASSWORD
  HOLDFAST_SENTINEL_USER, HOLDFAST_SENTINEL_PASSWORD
`

// run is the whole command. It returns what the process ends with.
func (sh *shell) run(ctx context.Context, args []string) int {
	commands := map[string]func(context.Context, []string) (int, error){
		"doctor": sh.doctor, "ls": sh.ls, "show": sh.show, "revoke": sh.revoke,
	}
	if len(args) == 0 {
		fmt.Fprint(sh.err, usage)
		return exitFailed
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
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
	case errors.Is(err, flag.ErrHelp): // it has been printed
		return exitOK
	case errors.As(err, new(flagError)): // likewise
		return exitFailed
	case err != nil:
		fmt.Fprintf(sh.err, "holdfast %s: %v\n", args[0], oneLine(strings.ReplaceAll(err.Error(), "\n", "; "))) // joined errors have lines
		if h := new(hintedError); errors.As(err, h) {
			fmt.Fprintln(sh.err, h.say)
		}
		return exitFailed
	}
	return code
}

// flagError is a mistake in the flags, which package flag has printed.
type flagError struct{ error }
