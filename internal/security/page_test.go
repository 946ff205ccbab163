package security_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const readRights = redistest.Keys + " resetchannels -@all +eval +evalsha +time +get +hget +hmget +pttl +zrange +zcard +zscore +scan +info"

// With the published rights, the page shows all that there is to see, and nothing is denied. Without any
// one of them, that right is denied by its name.
func TestRightsOfThePage(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	look := func(t *testing.T, rules string) (denied []string, missing string) {
		s := redistest.Real(t)
		furnish(t, s.Client(t))
		setUser(t, s, rules)
		missing = visit(t, inspect.New(newLocker(t, s.Client(t, asJob), lockcore.Options{}), inspect.Options{Pace: time.Millisecond}))
		return denials(t, s), missing
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		if denied, missing := look(t, readRights); len(denied) > 0 || missing != "" {
			t.Errorf("denied: %q, not shown: %s", denied, missing)
		}
	})
	for right := range strings.FieldsSeq(readRights) {
		if right == "-@all" || right == "resetchannels" {
			continue
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			denied, _ := look(t, strings.Join(slices.DeleteFunc(strings.Fields(readRights), func(r string) bool { return r == right }), " "))
			if len(denied) == 0 || right[0] == '+' && !slices.Equal(denied, []string{right[1:]}) {
				t.Errorf("without %s these are denied: %q", right, denied)
			}
		})
	}
}

// With the rights of the page, no key changes.
func TestRightsOfThePageChangeNothing(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	furnish(t, admin)
	setUser(t, s, readRights)
	l := newLocker(t, s.Client(t, asJob), lockcore.Options{})
	ctx := t.Context()
	for name, err := range map[string]error{
		"acquire":     second(l.Acquire(ctx, "free", noWait)),
		"revoke":      l.Revoke(ctx, event.KindExclusive, "held"),
		"clear":       l.Clear(ctx, event.KindOnce, "abandoned"),
		"pause":       l.Pause(ctx, "held", time.Minute, "r"),
		"end a pause": l.Pause(ctx, "paused", 0, ""),
		"restrict":    l.Restrict(ctx, "held", lockcore.Restriction{Limit: 1, For: time.Minute, Reason: "r"}),
	} {
		if !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for key, want := range map[string]lockcore.State{"free": lockcore.StateFree, "held": lockcore.StateHeld, "paused": lockcore.StateCooling} {
		if h, err := l.Inspect(ctx, event.KindExclusive, key); err != nil || h.State != want || h.Revoked || h.PauseLeft > 0 != (key == "paused") || h.Restriction.For > 0 {
			t.Errorf("%s: %+v, %v", key, h, err)
		}
	}
	if text := visit(t, inspect.New(l, inspect.Options{})); text != "" {
		t.Errorf("not shown after that: %s", text)
	}
}

func second[T any](_ T, err error) error { return err }

// After the clock of the server was set back, whoever inspects a key corrects its times. A user who may
// only read sees the same, and the keys beside it.
func TestRightsOfThePageAfterTheClockWasSetBack(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	admin, ctx := s.Client(t), t.Context()
	furnish(t, admin)
	now, err := admin.Time(ctx).Result()
	check(t, err)
	const hash = "holdfast:2:x:{held}"
	check(t, admin.HSet(ctx, hash, "x", now.Add(time.Hour).UnixMicro()).Err())
	setUser(t, s, readRights)
	l := newLocker(t, s.Client(t, asJob), lockcore.Options{})
	h, err := l.Inspect(ctx, event.KindExclusive, "held")
	check(t, err)
	if h.Remaining > h.Lease || h.Remaining < h.Lease-time.Second {
		t.Errorf("%v left of %v", h.Remaining, h.Lease)
	}
	if missing := visit(t, inspect.New(l, inspect.Options{})); missing != "" {
		t.Errorf("not shown: %s", missing)
	}
	if denied := denials(t, s); !slices.Equal(denied, []string{"hdel", "hset"}) {
		t.Errorf("denied: %q", denied)
	}
}

// furnish makes a key of each kind, which a user with all rights holds.
func furnish(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	a, b := newLocker(t, rdb, lockcore.Options{Observer: event.Discard}), newLocker(t, rdb, lockcore.Options{Observer: event.Discard})
	for _, key := range []string{"plain", "held", "cooling"} {
		le, err := a.Acquire(lockcore.WithTask(ctx, "job-7"), key, lockcore.Terms{MinHold: time.Hour})
		check(t, err)
		if key == "cooling" {
			check(t, le.Release(ctx))
		}
	}
	waits, stop := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = b.Acquire(waits, "held", lockcore.Terms{Wait: lockcore.Forever}) })
	t.Cleanup(waiting.Wait)
	t.Cleanup(stop)
	for {
		if h, err := a.Inspect(ctx, event.KindExclusive, "held"); err != nil || h.Queue > 0 {
			check(t, err)
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	hidden := access.Of(b).Backend
	key := hidden.Key(backend.KindExclusive, "held")
	_, err := hidden.Park(ctx, backend.ParkRequest{Key: &key, Entry: "/default/7", Most: 1, Keep: time.Hour})
	check(t, err)
	_, err = hidden.Order(ctx, backend.TriggerRequest{Key: &key, Op: backend.TriggerNote, Entry: "/default/8", Fresh: true, Keep: time.Hour, Most: 10})
	check(t, err)
	for range 2 {
		_, err = a.AcquireShare(ctx, "shared", lockcore.Limit{N: 3}, lockcore.Terms{})
		check(t, err)
	}
	check(t, a.Pause(ctx, "paused", time.Hour, "down"))
	check(t, a.Restrict(ctx, "restricted", lockcore.Restriction{Limit: 1, For: time.Hour, Reason: "slow"}))
	check(t, second(a.Throttle(ctx, "restricted", lockcore.Rate{N: 1, Per: time.Second}, lockcore.ThrottleOptions{})))
	for _, key := range []string{"done", "abandoned"} {
		le, _, err := a.Claim(ctx, key, lockcore.Claim{})
		check(t, err)
		if key == "done" {
			check(t, le.Complete(ctx, []byte("record"), time.Hour))
		} else {
			check(t, le.Abandon(ctx))
		}
	}
	check(t, rdb.ScriptFlush(ctx).Err())
}

// visit opens all of the page, and returns the first part that does not show what it should.
func visit(t *testing.T, page http.Handler) (missing string) {
	t.Helper()
	get := func(target string, want ...string) {
		if missing != "" {
			return
		}
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if strings.HasPrefix(target, "events") {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond) // it would go on for ten minutes
			}
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+target, http.NoBody))
			cancel()
			text := w.Body.String()
			if !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(text, part) }) {
				missing = ""
				return
			}
			if missing = fmt.Sprintf("%s: want %q in %s", target, want, text); w.Code != http.StatusOK || strings.Contains(text, "NOPERM") || strings.Contains(text, "run this command") {
				return // it will not get better
			}
		}
	}
	get("key?kind=exclusive&key=plain", "<dt>state</dt>")
	get("stuck?once=yes", "Keys of Once are included", "abandoned")
	get("api/held?once=yes", `"complete": true`, "plain", "held", "cooling", "shared", "paused", "restricted", "abandoned", "job-7", `"id": "7"`)
	get("", "last walk over all keys", "job-7")
	get("api/stuck?once=yes", "abandoned")
	get("events?screen=held", "job-7", "data: ")
	get("events?screen=stuck&once=yes", "abandoned")
	for key, kind := range map[string]string{
		"plain": "exclusive", "held": "exclusive", "cooling": "exclusive", "shared": "exclusive", "paused": "exclusive", "restricted": "exclusive",
		"abandoned": "once", "done": "once", "free": "once",
	} {
		get("key?kind="+kind+"&key="+key, "<dt>state</dt>")
		get("api/key?kind="+kind+"&key="+key, `"state"`)
		get("find?"+url.Values{"q": {key}}.Encode(), key)
		get("api/why?q="+key, `"answer"`)
	}
	get("find", "Ask")
	return missing
}
