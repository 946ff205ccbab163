package locktest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

// SetTime stops the clock of s.
func (s *Server) SetTime(t time.Time) { s.redis.SetTime(t) }

// Names returns all keys of s.
func (s *Server) Names() []string { return s.redis.Keys() }

// RunShortly is Run with -short.
func RunShortly(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) {
	t.Helper()
	run(t, newSuite(o, true, rdb))
}

// RunQuorumShortly is RunQuorum with -short.
func RunQuorumShortly(t *testing.T, masters []*redis.Client, o lockcore.Options) {
	t.Helper()
	run(t, quorumSuite(masters, o, true))
}

// RunChecks runs the checks of Run whose names contain one of some, each with -short. It returns
// the messages of those that failed.
func RunChecks(tb testing.TB, rdb redis.UniversalClient, some ...string) map[string]string {
	tb.Helper()
	s := newSuite(lockcore.Options{}, true, rdb)
	defer s.clean(tb)
	failed, ran := map[string]string{}, 0
	for _, c := range checks() {
		if !slices.ContainsFunc(some, func(part string) bool { return strings.Contains(c.name, part) }) {
			continue
		}
		ran++
		v := &verdict{TB: tb}
		v.in(func() { s.try(v, c) })
		for _, f := range slices.Backward(v.cleanups) {
			v.in(f)
		}
		if v.failed {
			failed[c.name] = v.said.String()
		}
	}
	if ran < len(some) {
		tb.Errorf("%d checks of %v", ran, some)
	}
	return failed
}

// verdict is a test that may fail.
type verdict struct {
	testing.TB
	cleanups []func()

	mu     sync.Mutex
	failed bool
	said   strings.Builder
}

// in runs f in a goroutine that Fatal can end.
func (v *verdict) in(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (v *verdict) say(fails bool, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = v.failed || fails
	v.said.WriteString(text + "\n")
}

func (v *verdict) Helper()                   {}
func (v *verdict) Cleanup(f func())          { v.cleanups = append(v.cleanups, f) }
func (v *verdict) Log(a ...any)              { v.say(false, fmt.Sprint(a...)) }
func (v *verdict) Logf(f string, a ...any)   { v.say(false, fmt.Sprintf(f, a...)) }
func (v *verdict) Error(a ...any)            { v.say(true, fmt.Sprint(a...)) }
func (v *verdict) Errorf(f string, a ...any) { v.say(true, fmt.Sprintf(f, a...)) }
func (v *verdict) Fatal(a ...any)            { v.Error(a...); runtime.Goexit() }
func (v *verdict) Fatalf(f string, a ...any) { v.Errorf(f, a...); runtime.Goexit() }
func (v *verdict) Skip(a ...any)             { v.Log(a...); runtime.Goexit() }
