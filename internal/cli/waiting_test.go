package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ls and show print how many calls wait in other processes, and for how long the oldest of them has
// waited.
func TestWaiting(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	holder := locker(t, s.Client(t), "")
	_, err := holder.Acquire(t.Context(), "account:42", lockcore.Terms{Lease: time.Hour})
	ok(t, err)
	for _, step := range []struct {
		waits backend.Waits
		want  string
	}{
		{backend.Waits{}, "1 call in 1 process"},
		{backend.Waits{Calls: 4, Oldest: time.Hour}, "5 calls in 2 processes, oldest 1h0m"},
	} {
		b := access.Of(locker(t, s.Client(t), "")).Backend
		key := b.Key(backend.KindExclusive, "account:42")
		r := backend.AcquireRequest{Key: &key, ID: strings.Repeat("R", 26), Lease: time.Minute, Retention: time.Hour, Queue: true, Timeout: backend.CallTimeout, Waits: step.waits}
		_, err := b.Acquire(context.Background(), r)
		ok(t, err)
		for _, command := range [][]string{{"ls"}, {"show", "account:42"}} {
			if _, out, _ := (call{}).run(t, append([]string{command[0], "-redis", s.Addr()}, command[1:]...)...); !strings.Contains(out, step.want) {
				t.Errorf("%v prints\n%s\nwant %s", command, out, step.want)
			}
		}
	}
	var printed keys
	_, out, _ := call{}.run(t, "show", "-json", "-redis", s.Addr(), "account:42")
	ok(t, json.Unmarshal([]byte(out), &printed))
	if k := printed.Keys[0]; k.Queue != 2 || k.WaitingCalls != 5 || k.OldestWaitMS < time.Hour.Milliseconds() {
		t.Errorf("%d processes, %d calls, the oldest for %d ms", k.Queue, k.WaitingCalls, k.OldestWaitMS)
	}
}
