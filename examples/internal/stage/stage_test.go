package stage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

// A program that cannot work returns an error at once.
func TestErrors(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	p := stage.Program{Name: "program", Play: func(ctx context.Context, _ *stage.Stage) error { return stage.Sleep(ctx, time.Hour) }}
	stagetest.WantError(t, p, "-rediss", "-rediss", "x")
	stagetest.WantError(t, p, `"x"`, "x")
	for _, bad := range []string{"localhost", "redis://:secret@h:1"} {
		stagetest.WantError(t, p, "-redis must be HOST:PORT", "-redis", bad)
	}
	if err := p.Run(t.Context(), []string{"-help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	stagetest.WantError(t, p, "-redis must be one HOST:PORT", "-redis", "a:1,b:2,c:3")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p.Memory = range []bool{false, true} {
		if err := p.Run(ended, nil, io.Discard); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestNoRedis(t *testing.T) {
	testlevel.Full(t) // go-redis dials for two seconds
	p := stage.Program{Name: "program", Play: func(context.Context, *stage.Stage) error { return nil }}
	stagetest.WantError(t, p, "redis at 127.0.0.1:1: ", "-redis", "127.0.0.1:1")
}

// A chapter whose result is not right, or that ends with an error, ends the program. Otherwise its
// result is a row of the table. OnEach checks that the keys of the program are removed.
func TestTell(t *testing.T) {
	told := errors.New("told")
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		var chapters []stage.Chapter[result]
		p := stage.Program{Name: "program", Play: func(ctx context.Context, s *stage.Stage) error {
			node, err := s.Node(lockcore.Options{})
			if err != nil {
				return err
			}
			if _, err := guard.Once(ctx, node.Locks, "k", guard.OnceOptions{}, func(context.Context) error { return nil }); err != nil {
				return err
			}
			return stage.Tell(ctx, s, "runs\tstate", chapters)
		}}
		chapter := func(right bool, err error) stage.Chapter[result] {
			return stage.Chapter[result]{
				Title: "a title", Tell: func(context.Context) (result, error) { return 7, err }, Right: func(r result) bool { return r == 7 && right },
			}
		}
		chapters = []stage.Chapter[result]{chapter(true, nil), chapter(true, nil)}
		stagetest.Output(t, p, args, `1\. a title`, `2\. a title`, `\n\n +runs   state\na title   7      done\na title   7      done\n$`)
		chapters[1] = chapter(false, nil)
		stagetest.WantError(t, p, "a title: unexpected result (runs, state): 7, done", args...)
		chapters[1] = chapter(true, told)
		stagetest.WantError(t, p, "a title: told", args...)
	})
}

type result int

func (r result) String() string { return fmt.Sprintf("%d\tdone", int(r)) }

// A cut node loses its lease and gets no new one until it is mended. The other node is not
// affected.
func TestCut(t *testing.T) {
	testlevel.Full(t)
	nothing := func(context.Context) error { return nil }
	p := stage.Program{Name: "program", Play: func(ctx context.Context, s *stage.Stage) error {
		terms := lockcore.Terms{Lease: time.Second}
		a, err := s.Node(lockcore.Options{Terms: terms})
		if err != nil {
			return err
		}
		b, err := s.Node(lockcore.Options{Terms: terms})
		if err != nil {
			return err
		}
		err = guard.Exclusive(ctx, a.Locks, "k", lockcore.Terms{}, func(held context.Context) error {
			a.Cut()
			<-held.Done()
			return guard.Exclusive(ctx, b.Locks, "k", lockcore.Terms{}, nothing)
		})
		if !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("after the cut: %v", err)
		}
		a.Mend()
		return guard.Exclusive(ctx, a.Locks, "k", lockcore.Terms{}, nothing)
	}}
	stagetest.OnEach(t, func(t *testing.T, args ...string) { stagetest.Output(t, p, args) })
}

// A server answers at its URL, and ends with its ctx.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	err := stage.Serve(ctx, ":0", hello, func(url string) {
		defer stop()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" || !strings.HasPrefix(url, "http://127.0.0.1:") {
			t.Errorf("%s answers %q, %v", url, body, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
