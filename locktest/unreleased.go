package locktest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/event"
)

// unreleased is the Observer of each Locker that this package makes. It records where each
// unreleased lease was acquired, and passes all calls on to the Observer of the test. mu guards
// calls.
type unreleased struct {
	next  event.Observer // nil if the test has none
	mu    sync.Mutex
	calls map[*call]bool
}

// call is what Start received, and the stack of its caller.
type call struct {
	acquisition event.Acquisition
	stack       []uintptr
}

type callKey struct{}

func (u *unreleased) Start(ctx context.Context, a event.Acquisition) context.Context {
	if u.next != nil {
		ctx = u.next.Start(ctx, a)
	}
	var stack [64]uintptr
	return context.WithValue(ctx, callKey{}, &call{a, slices.Clone(stack[:runtime.Callers(2, stack[:])])})
}

func (u *unreleased) Event(ctx context.Context, e event.Event) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		u.mu.Lock()
		switch e.(type) {
		case event.Granted:
			u.calls[c] = true
		case event.Released:
			delete(u.calls, c)
		}
		u.mu.Unlock()
	}
	if u.next != nil {
		u.next.Event(ctx, e)
	}
}

func (u *unreleased) Traceparent(ctx context.Context) string {
	if u.next == nil {
		return ""
	}
	return u.next.Traceparent(ctx)
}

// String lists the leases, one a line, sorted.
func (u *unreleased) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	lines := make([]string, 0, len(u.calls))
	for c := range u.calls {
		lines = append(lines, fmt.Sprintf("\n\t%q was not released, acquired at %s", c.acquisition.Key, c.caller()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// caller returns the innermost function outside of holdfast, or the outermost function if there is
// none.
func (c *call) caller() string {
	frames := runtime.CallersFrames(c.stack)
	for {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, "github.com/holdfast-go/holdfast/") && !strings.HasSuffix(f.File, "_test.go")
		if !own || !more {
			return fmt.Sprintf("%s:%d (%s)", f.File, f.Line, f.Function)
		}
	}
}
