//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) {
	if args, child := os.LookupEnv(pausedEnv); child {
		if err := buyPaused(context.Background(), args, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The controls give wrong results and all other strategies right ones: on SQLite, with a Redis
// inside the process and with a real one. proof/sqltest runs the program on PostgreSQL and
// MariaDB.
func TestCompare(t *testing.T) {
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		out := stagetest.Output(t, program(), append(args, "-users", "300", "-units", "30"), "What this says")
		if simulated := strings.Contains(out, " - "); simulated != (len(args) == 0) {
			t.Errorf("%s", out)
		}
		for _, s := range strategies {
			if !strings.Contains(out, "\n"+s.name) {
				t.Errorf("the table has no row %q", s.name)
			}
		}
	})
}

func TestJudge(t *testing.T) {
	right := result{sold: 100, charged: 100}
	edit := func(f func(r *result)) result {
		r := right
		f(&r)
		return r
	}
	failed := errors.New("connection refused")
	fence := right
	fence.stale = 1
	for _, tt := range []struct {
		s  strategy
		r  result
		ok bool
	}{
		{strategy{}, right, true},
		{strategy{pause: true}, fence, true},
		{strategy{pause: true}, right, false},
		{strategy{}, fence, false},
		{strategy{}, edit(func(r *result) { r.sold, r.oversold, r.charged = 101, 1, 101 }), false},
		{strategy{}, edit(func(r *result) { r.sold, r.charged = 99, 99 }), false},
		{strategy{}, edit(func(r *result) { r.two = 1 }), false},
		{strategy{}, edit(func(r *result) { r.left = 1 }), false},
		{strategy{}, edit(func(r *result) { r.twice = 1 }), false},
		{strategy{}, edit(func(r *result) { r.charged = 99 }), false},
		{strategy{}, edit(func(r *result) { r.failed, r.firstErr = 1, failed }), false},
		{strategy{control: true}, right, false},
		{strategy{control: true}, edit(func(r *result) { r.oversold = 1 }), false},
		{strategy{control: true}, edit(func(r *result) { r.two = 1 }), false},
		{strategy{control: true}, edit(func(r *result) { r.oversold, r.two = 1, 1 }), true},
		{strategy{control: true, pause: true}, edit(func(r *result) { r.oversold = 1 }), true},
		{strategy{control: true, pause: true}, edit(func(r *result) { r.two = 1 }), false},
		{strategy{control: true}, edit(func(r *result) { r.oversold, r.two, r.failed, r.firstErr = 1, 1, 1, failed }), false},
	} {
		if err := tt.s.judge(tt.r, 100); (err == nil) != tt.ok {
			t.Errorf("%+v of %+v: %v", tt.r, tt.s, err)
		}
	}
	err := strategy{}.judge(result{sold: 1, oversold: 2, two: 3, twice: 4, left: 5, charged: 6, stale: 7}, 100)
	const want = "WRONG: 1 sold, 2 oversold, 3 users with two orders, 4 charged twice, 5 left, 6 users charged, 7 writes refused; want 100, 0, 0, 0, 0, 100, 0"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The provider charges for each request without a key, and once for a key. It drops every fifth
// response.
func TestProvider(t *testing.T) {
	p, err := newProvider(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.close() })
	for user := range 20 {
		if err := p.pay(t.Context(), user, orderKey(user)); err != nil {
			t.Fatal(err)
		}
	}
	if charged, twice := p.counts(); charged != 20 || twice != 0 || p.requests <= 20 {
		t.Errorf("%d requests charged %d users, %d of them twice", p.requests, charged, twice)
	}
	for user := range 20 {
		if err := p.pay(t.Context(), user, ""); err != nil {
			t.Fatal(err)
		}
	}
	if charged, twice := p.counts(); charged != 20 || twice != 20 {
		t.Errorf("without keys: %d users charged, %d of them twice", charged, twice)
	}
}

// The program prints no conclusions if it runs only some strategies, or if one fails.
func TestNoConclusions(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	args := []string{"-only", "SQL: one UPDATE, sqlonce", "-users", "40", "-units", "13", "-clicks", "3", "-at-once", "8"}
	out := stagetest.Output(t, program(), args, "40 users want 13 units, and each clicks 3 times; 8 clicks at once")
	if strings.Contains(out, "no lock  ") || strings.Contains(out, "What this says") {
		t.Errorf("%s", out)
	}
	old := strategies
	t.Cleanup(func() { strategies = old })
	strategies = []strategy{{name: "sold out", buy: func(context.Context, *shop, int) error { return errSoldOut }}}
	var text strings.Builder
	err := program().Run(t.Context(), []string{"-users", "40", "-units", "13"}, &text)
	if err == nil || !strings.Contains(err.Error(), "WRONG: 0 sold") || strings.Contains(text.String(), "What this says") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// After SIGTERM the program ends early and removes its data. The error names the signal.
func TestSignal(t *testing.T) {
	r := redistest.Real(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, stop := stage.UntilSignal(t.Context())
	defer stop()
	old := strategies
	t.Cleanup(func() { strategies = old })
	strategies = []strategy{{name: "slow", buy: func(ctx context.Context, _ *shop, user int) error {
		if user == 0 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}}}
	err := program().Run(ctx, []string{"-redis", r.Addr(), "-users", "20", "-units", "10"}, io.Discard)
	if cause := context.Cause(ctx); cause == nil || !errors.Is(err, cause) || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("%v, the cause is %v", err, cause)
	}
	if keys := r.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys are left: %q", keys)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}

func TestBadInput(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	for args, want := range map[string]string{
		"-work 1m":                    "-work is 1m0s, must be between 0 and 250ms",
		"-work -1s":                   "-work is -1s, must be between",
		"-db oracle://u:secret@host":  "-db must begin with postgres:// or mysql://",
		"-db root:secret@tcp(host)/":  "-db must begin with postgres:// or mysql://",
		"-db mysql://root:secret/":    "-db: after mysql:// must be",
		"-db postgres://u:secret@[/":  "-db is not a URL",
		"-users 19":                   "-users is 19, must be between 20 and 100000",
		"-users 50 -units 26":         "-units is 26, must be between 10 and 25",
		"-units 9":                    "-units is 9, must be between 10 and 500",
		"-clicks 1":                   "-clicks is 1, must be between 2 and 10",
		"-at-once 1001":               "-at-once is 1001, must be between 2 and 1000",
		"-only lock":                  `-only is "lock", must be one of ["no lock" `,
		"-db mysql://localhost:3306/": "-db: after mysql:// must be USER:PASSWORD@tcp(HOST:PORT)/",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := program().Run(ctx, strings.Fields(args), io.Discard)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
