//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

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

// The controls go wrong, and all other strategies are right: on SQLite, with a Redis inside the process and with a real one.
// internal/sqltest runs the program on PostgreSQL and MariaDB.
func TestCompare(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "" },
		"real":   func(t *testing.T) string { return redistest.Real(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			m := &market{crowd: crowd{users: 300, clicks: 2, atOnce: 64}, units: 30, stdout: &out}
			remove, err := m.open(t.Context(), addr(t), "")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(m.compare(t.Context()), remove()); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			for _, s := range strategies {
				if !strings.Contains(out.String(), "\n"+s.name) {
					t.Errorf("the table has no row %q", s.name)
				}
			}
		})
	}
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
		{strategy{control: true}, edit(func(r *result) { r.oversold = 1 }), true},
		{strategy{control: true}, edit(func(r *result) { r.two = 1 }), true},
		{strategy{control: true}, edit(func(r *result) { r.two, r.failed, r.firstErr = 1, 1, failed }), false},
	} {
		if err := tt.s.judge(tt.r, 100); (err == nil) != tt.ok {
			t.Errorf("%+v of %+v: %v", tt.r, tt.s, err)
		}
	}
}

// The provider charges for each request without a key, and once for a key. It drops every fifth answer.
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
	if charged, twice := p.twice(); charged != 20 || twice != 0 || p.requests <= 20 {
		t.Errorf("%d requests charged %d users, %d of them twice", p.requests, charged, twice)
	}
	for user := range 20 {
		if err := p.pay(t.Context(), user, ""); err != nil {
			t.Fatal(err)
		}
	}
	if charged, twice := p.twice(); charged != 20 || twice != 20 {
		t.Errorf("without keys: %d users charged, %d of them twice", charged, twice)
	}
}

func TestBadInput(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	for args, want := range map[string]string{
		"-work 1m":                    "-work is 1m0s, must be between 0 and 250ms",
		"-work -1s":                   "-work is -1s, must be between",
		"-db oracle://localhost":      `-db begins with "oracle", must begin with postgres:// or mysql://`,
		"-db mysql://localhost:3306/": "-db: after mysql:// must be USER:PASSWORD@tcp(HOST:PORT)/",
		"-redis 127.0.0.1:1":          "-redis 127.0.0.1:1: ",
		"more":                        `unexpected argument "more"`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := run(ctx, strings.Fields(args), io.Discard)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
