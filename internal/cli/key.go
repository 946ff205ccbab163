package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/version"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// version prints the version of the command.
func (sh *shell) version(_ context.Context, args []string) (int, error) {
	f := sh.flagSet("version", "")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 0); err != nil {
		return exitFailed, err
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if *asJSON {
		return exitOK, sh.print(struct {
			Version  string `json:"version"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{version.String(), runtime.Version(), platform})
	}
	fmt.Fprintf(sh.out, "holdfast %s %s %s\n", version.String(), runtime.Version(), platform)
	return exitOK, nil
}

// key prints the key of an HTTP request. The secret is not an argument, because other users of the
// machine can read arguments.
func (sh *shell) key(_ context.Context, args []string) (int, error) {
	f := sh.flagSet("key", " IDEMPOTENCY-KEY")
	scope := f.String("scope", "", "result of the program's scope function for the caller, such as a tenant or a user")
	method := f.String("method", "POST", "method of the request")
	path := f.String("path", "", "path of the request as it was sent: escaped, without the query")
	file := f.String("secret-file", "", "`file` with IdempotentOptions.Secret, without its last newline; default: HOLDFAST_HTTP_SECRET, else no secret")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	for _, needed := range []struct{ flag, value string }{{"-scope", *scope}, {"-path", *path}} {
		if needed.value == "" {
			return exitFailed, fmt.Errorf("%s is missing", needed.flag)
		}
	}
	secret := []byte(sh.getenv("HOLDFAST_HTTP_SECRET"))
	if *file != "" {
		b, err := os.ReadFile(*file)
		if err != nil {
			return exitFailed, fmt.Errorf("-secret-file: %w", err)
		}
		secret = []byte(strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"))
		if len(secret) == 0 {
			return exitFailed, fmt.Errorf("-secret-file: %s is empty", *file)
		}
	}
	if len(secret) == 0 {
		secret = nil
	}
	key, err := (httpmw.IdempotentOptions{Secret: secret}).KeyOf(*scope, *method, *path, f.Arg(0))
	if err != nil {
		return exitFailed, err
	}
	if *asJSON {
		return exitOK, sh.print(struct {
			Kind event.Kind `json:"kind"`
			Key  string     `json:"key"`
		}{event.KindOnce, key})
	}
	fmt.Fprintln(sh.out, key)
	return exitOK, nil
}

// clear clears a key after a confirmation, unless the key has changed since it was shown.
func (sh *shell) clear(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("clear", " KEY")
	once := f.Bool("once", false, "clear a key of Once")
	exclusive := f.Bool("exclusive", false, "clear a key of Exclusive that is cooling, or whose data cannot be read")
	yes := f.Bool("yes", false, "skip the confirmation")
	forced := forceFlags(f)
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	switch {
	case *once && *exclusive:
		return exitFailed, errors.New("-once and -exclusive exclude each other")
	case !*once && !*exclusive && !*forced.force:
		return exitFailed, errors.New("-once or -exclusive is missing; for a held key use revoke, or clear -force if its holder has died")
	}
	if err := forced.check(*yes); err != nil {
		return exitFailed, err
	}
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		k, err := operator.Inspect(ctx, l, kindOf(*once), f.Arg(0), false)
		switch {
		case errors.Is(err, lockcore.ErrRecord) && !*forced.force:
			return sh.repair(ctx, l, k, err, *yes, *asJSON)
		case err != nil:
			return exitFailed, err
		}
		if *forced.force {
			return sh.forceClear(ctx, l, k, forced, *asJSON)
		}
		revoke := "held, see holdfast revoke" + onceFlag(*once) + "; if its holder has died, see holdfast clear -force" + onceFlag(*once)
		if k.State == lockcore.StateShared {
			revoke = "shared, see holdfast revoke"
		}
		say := sh.out
		if *asJSON {
			say = sh.err
		}
		if err := describe(say, k); err != nil {
			return exitFailed, err
		}
		refuse := func(why string) (int, error) {
			fmt.Fprintf(sh.err, "%s is %s: not cleared\n", operator.OneLine(k.Key), why)
			return exitProblem, sh.jsonIf(*asJSON, k)
		}
		switch k.State {
		case lockcore.StateFree:
			defer func() { fmt.Fprintln(sh.err, sh.elsewhere(ctx, l, *once, k.Key, "-exclusive")) }()
			return refuse("free")
		case lockcore.StateHeld, lockcore.StateShared:
			return refuse(revoke)
		case lockcore.StateReserved:
			return refuse("reserved for a waiting process")
		default:
			fmt.Fprint(say, k.ClearText())
		}
		if err := sh.confirm(*yes, "Clear it?", "not cleared"); err != nil {
			return exitFailed, err
		}
		switch err := l.ClearIfUnchanged(ctx, k.Kind, k.Key, k.Holding); {
		case errors.Is(err, lockcore.ErrChanged):
			return refuse("changed since it was shown")
		case errors.Is(err, lockcore.ErrBusy):
			return refuse("now " + revoke)
		case err != nil:
			return exitFailed, err
		}
		if *asJSON {
			return exitOK, sh.printKeys("cleared", k)
		}
		fmt.Fprintln(sh.out, "cleared")
		return exitOK, nil
	})
}

// repair clears a key whose data cannot be read (problem is the error), unless the data can be read
// by then.
func (sh *shell) repair(ctx context.Context, l *lockcore.Locker, k operator.Key, problem error, yes, asJSON bool) (int, error) {
	fmt.Fprintf(sh.err, "%s\nA run of the key may be under way, or have had its effect, so check that first. Clearing deletes its record.\n", operator.OneLine(problem.Error()))
	if err := sh.confirm(yes, "Clear it?", "not cleared"); err != nil {
		return exitFailed, err
	}
	switch err := l.ClearIfUnchanged(ctx, k.Kind, k.Key, lockcore.Holding{}); {
	case errors.Is(err, lockcore.ErrChanged):
		fmt.Fprintf(sh.err, "%s has changed since it was shown: not cleared\n", operator.OneLine(k.Key))
		return exitProblem, nil
	case errors.Is(err, lockcore.ErrBusy):
		fmt.Fprintf(sh.err, "%s is now held: not cleared\n", operator.OneLine(k.Key))
		return exitProblem, nil
	case err != nil:
		return exitFailed, err
	}
	if asJSON {
		return exitOK, sh.printKeys("cleared")
	}
	fmt.Fprintln(sh.out, "cleared")
	return exitOK, nil
}

func (sh *shell) jsonIf(asJSON bool, k operator.Key) error {
	if !asJSON {
		return nil
	}
	return sh.printKeys("", k)
}
