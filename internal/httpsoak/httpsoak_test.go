package httpsoak_test

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

var (
	keys    = flag.Int("keys", 60, "keys")
	clients = flag.Int("clients", 10, "requests of each key, half of them at the same time")
	kill    = flag.Duration("kill", 500*time.Millisecond, "how often a server is killed while requests come in; 0: never")
	servers = flag.Int("servers", 3, "servers at the same time")
	longest = flag.Duration("longest", 0, "of the few runs that take longer than 50 ms; 0: half a lease, or one and a half where requests come in for 10 s")
)

const (
	endTime   = 5 * time.Second // in which a server ends after its standard input
	tellFirst = 5               // mistakes that each check prints
)

func TestMain(m *testing.M) { chaos.Main(m, serve) }

// While servers are killed and started again at random, the handler of a key completes once per
// recorded completion. All replays are equal byte for byte, takeovers are reported, and no request
// waits longer than the lease for a dead server. With at most once, a run that was killed never
// runs again.
func TestHTTPSoak(t *testing.T) {
	testlevel.Campaign(t)
	redis := redistest.Real(t)
	path := filepath.Join(t.TempDir(), "journal")
	k := newKiller(t, task{Redis: redis.Addr(), Journal: path, Longest: longestRun()}, *servers)
	c := newCrowd(k.addrs(), *keys)
	k.lure = func(m mount, addr string) { c.lure(m, addr, *clients) }
	start := time.Now()
	stop, killed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killed)
		if *kill > 0 {
			k.kill(*kill, stop)
		}
	}()
	c.send(moments(*keys, *clients), func() { close(stop); <-killed })
	took := time.Since(start)
	k.end()
	lines, err := readJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{lines: lines, deaths: k.deaths, keys: append(c.keys, c.lures...)}
	v := h.judge()
	report(t, v, c, took)
	if *kill > 0 && (v.midRun == 0 || v.takeovers == 0 || v.unknown == 0) {
		t.Error("inconclusive: no kill in the middle of a run, no takeover, or no unknown outcome")
	}
	if n := int(c.asked.Load()); v.requests < n || n < *keys**clients {
		t.Errorf("%d of %d requests and more have a final answer", v.requests, n)
	}
	if n := c.peak.Load(); n > 2*inFlight { // as many idle ones are kept
		t.Errorf("%d connections for %d requests at a time", n, inFlight)
	}
}

func longestRun() time.Duration {
	switch {
	case *longest > 0:
		return *longest
	case span(*keys, *clients) > 10*time.Second:
		return lease * 3 / 2
	}
	return lease / 2
}

func report(t *testing.T, v *verdict, c *crowd, took time.Duration) {
	t.Helper()
	killed := 0
	for _, n := range v.steps {
		killed += n
	}
	t.Logf("httpsoak: %v, %d keys, %d requests, %d tries without an answer, %d in progress, %d unavailable; %d connections, %d at a time",
		took.Round(time.Millisecond), len(c.keys)+len(c.lures), v.requests, c.refused.Load(), v.inProgress, v.unavailable, c.dials.Load(), c.peak.Load())
	t.Logf("httpsoak: %d processes killed %v; of %d runs %d were killed before they began, %d in the middle, %d between end and record, %d unseen",
		killed, v.steps, v.runs, v.begun, v.midRun, v.ended, v.unseen)
	slices.Sort(v.tries)
	at := func(percent int) time.Duration {
		if len(v.tries) == 0 {
			return 0
		}
		return v.tries[(len(v.tries)-1)*percent/100].Round(time.Millisecond / 10)
	}
	t.Logf("httpsoak: %d takeovers, %d keys of unknown outcome; longest wait for a dead server %v; answers after %v (p50), %v (p99), %v (longest); servers and Redis were late by %v at most",
		v.takeovers, v.unknown, v.deadWait.Round(time.Millisecond), at(50), at(99), at(100), v.late.Round(time.Millisecond))
	checks := map[string]int{}
	for _, w := range v.wrong {
		check, _, _ := strings.Cut(w, ":")
		if checks[check]++; checks[check] <= tellFirst {
			t.Error(w)
		}
	}
	if len(checks) > 0 {
		t.Errorf("mistakes by check: %v", checks)
		if v.late > lease/2 {
			t.Logf("the machine was so busy that a lease could not be kept: it may be to blame")
		}
	}
}
