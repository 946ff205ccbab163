package browsertest_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

var update = flag.Bool("update", false, "write the pictures of docs/pictures anew; it takes half a minute")

// scene is a fixed set of keys, as an operator finds them at night.
func scene(t *testing.T) *site {
	t.Helper()
	s := &site{redis: locktest.NewServer(t)}
	var lockers []*lockcore.Locker
	for range 4 {
		lockers = append(lockers, s.redis.Locker(lockcore.Options{}))
	}
	s.locks = lockers[0]
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s.hold(t, "charge-4711", "account:42", lockcore.Terms{})
	for _, l := range lockers[1:] {
		go func() { _, _ = l.Acquire(ctx, "account:42", lockcore.Terms{Wait: lockcore.Forever}) }() // ends with ctx
	}
	s.hold(t, "nightly-report", "report:nightly", lockcore.Terms{Lease: time.Second})
	s.hold(t, "import-9", "import:globex", lockcore.Terms{})
	for i := range 3 {
		le, err := s.locks.AcquireShare(lockcore.WithTask(t.Context(), fmt.Sprint("sync-", i)), "partner:globex", lockcore.Limit{N: 5}, lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = le.Release(context.Background()) })
	}
	charge, _, err := s.locks.Claim(lockcore.WithTask(t.Context(), "charge-4698"), "payment:8", lockcore.Claim{})
	if err == nil {
		err = charge.Abandon(t.Context())
	}
	for _, do := range []func() error{
		func() error {
			return s.locks.Pause(t.Context(), "partner:acme", 30*time.Minute, "acme answers 503, ticket 812")
		},
		func() error {
			return s.locks.Restrict(t.Context(), "partner:globex", lockcore.Restriction{Limit: 2, For: time.Hour, Reason: "globex asked for less"})
		},
		func() error { return s.locks.Revoke(t.Context(), event.KindExclusive, "import:globex") },
	} {
		if err == nil {
			err = do()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		time.Sleep(12 * time.Second) // until a hold is older than ten leases
	}
	page := inspect.New(s.locks, inspect.Options{Allow: everyone, Tasks: func(_ context.Context, id string) ([]inspect.Task, error) {
		if id != "charge-4712" {
			return nil, nil
		}
		return []inspect.Task{{ID: id, Queue: "payments", Type: "charge", State: "retry", MaxRetry: 25, Next: time.Now().Add(41 * time.Second), LastErr: `asynqmw: parked on key "account:42" with 0 before it; held for 2.2s by worker-3/17 task "charge-4711"`}}, nil
	}})
	host, _ := os.Hostname()
	here := fmt.Sprintf("%s/%d", host, os.Getpid())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page.ServeHTTP(elsewhere{w, here}, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.url = srv.URL + "/"
	return s
}

// elsewhere replaces the name of this process in a response.
type elsewhere struct {
	http.ResponseWriter
	here string
}

func (e elsewhere) Write(b []byte) (int, error) {
	_, err := e.ResponseWriter.Write(bytes.ReplaceAll(b, []byte(e.here), []byte("worker-3/17")))
	return len(b), err
}

func (e elsewhere) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// Each screen, light and dark. docs/operate.md and README.md show the pictures.
func TestPictures(t *testing.T) {
	s := scene(t)
	screens := []struct {
		name, at string
		shows    []string
	}{
		{"held", "", []string{"account:42", "charge-4711", "paused", "restricted", "live"}},
		{"stuck", "stuck?once=yes", []string{"payment:8", "abandoned", "import:globex", "revoked, and its handler has not returned"}},
		{"key", "key?kind=exclusive&key=account:42", []string{"so its process lived then", "Revoke…", "Waiting: 3 calls in 3 processes"}},
		{"revoke", "revoke?kind=exclusive&key=account:42", []string{"Revoking asks the handler to stop", "Do nothing"}},
		{"why", "find?q=charge-4712", []string{"Task charge-4712 of queue payments is parked", "account:42 is held by worker-3/17"}},
	}
	b := open(t)
	for _, dark := range []bool{false, true} {
		scheme := map[bool]string{false: "light", true: "dark"}[dark]
		b.dark(dark)
		b.do(chromedp.EmulateViewport(1200, 400))
		for _, screen := range screens {
			b.do(chromedp.Navigate(s.url + screen.at))
			if screen.name == "stuck" { // the walk of the keys of Once
				b.within(func() bool {
					b.do(chromedp.Reload())
					return strings.Contains(b.text(), "payment:8")
				})
			}
			b.shows(screen.shows...)
			picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatal(err)
			}
			at, err := png.DecodeConfig(bytes.NewReader(picture))
			if err != nil || at.Width != 1200 || at.Height < 300 || at.Height > 1600 {
				t.Errorf("%s %s is %d × %d, %v", screen.name, scheme, at.Width, at.Height, err)
			}
			file := filepath.Join("..", "..", "docs", "pictures", fmt.Sprintf("page-%s-%s.png", screen.name, scheme))
			if *update {
				if err := os.WriteFile(file, picture, 0o644); err != nil { //nolint:gosec // a picture of the documentation
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%v; -update writes it", err)
			}
		}
	}
}
