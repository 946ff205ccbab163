package httpmw_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A rule is a line of the contract. Exactly one of refused, passes, once and waits applies.
type rule struct {
	name    string
	mount   string              // the name of a middleware of newMatrix
	method  string              // POST if empty
	keys    map[string][]string // the headers in each form; one valid key if nil
	tenant  string              // a if empty
	large   bool                // the body is above the limit
	panics  string              // a run before the cell panicked: with a response that was written, or also sent
	refused *refusal            // the result of every request; the handler never runs
	passes  bool                // every request runs
	once    *refusal            // the first request runs, and this is the result of a concurrent repetition; nil: it waits and is replayed
	waits   bool
}

type refusal struct {
	status  int
	problem string
	retry   bool // with Retry-After
}

var (
	malformed  = &refusal{400, "key-malformed", false}
	inProgress = &refusal{409, "in-progress", true}
	dropped    = &refusal{409, "not-replayable", false}
	reused     = &refusal{422, "key-reused", false}
)

func keys(bare, quoted string) map[string][]string {
	return map[string][]string{"bare": {bare}, "quoted": {quoted}}
}

var noKeys = map[string][]string{"bare": nil, "quoted": nil}

var contract = []rule{
	{name: "no key", mount: "once", keys: noKeys, refused: &refusal{400, "key-missing", false}},
	{name: "no key, optional", mount: "optional", keys: noKeys, passes: true},
	{name: "other method", mount: "once", method: "PUT", passes: true},
	{name: "empty key", mount: "once", keys: keys("", `""`), refused: malformed},
	{name: "long key", mount: "once", keys: keys(strings.Repeat("k", 256), `"`+strings.Repeat("k", 256)+`"`), refused: malformed},
	{name: "control character", mount: "once", keys: keys("a\tb", "\"a\tb\""), refused: malformed},
	{name: "not ASCII", mount: "once", keys: keys("sch\u00f6n", "\"sch\u00f6n\""), refused: malformed},
	{name: "half a string", mount: "once", keys: keys(`"k`, `"k\"`), refused: malformed},
	{name: "more than a string", mount: "once", keys: keys(`"k"k`, `"k";p=1`), refused: malformed},
	{name: "malformed, optional", mount: "optional", keys: keys(`"k`, `""`), refused: malformed},
	{name: "two headers", mount: "once", keys: map[string][]string{"bare": {"k", "k"}, "quoted": {`"k"`, `"k"`}}, refused: malformed},
	{name: "two headers made one", mount: "once", keys: keys("k, k", `"k", "k"`), refused: malformed},
	{name: "scope fails", mount: "once", tenant: "nobody", refused: &refusal{401, "unauthorized", false}},
	{name: "scope is empty", mount: "once", tenant: "empty", refused: &refusal{500, "internal", false}},
	{name: "valid", mount: "once", waits: true},
	{name: "valid, optional", mount: "optional", waits: true},
	{name: "valid, no wait", mount: "nowait", once: inProgress},
	{name: "valid, at most once", mount: "atmost", waits: true},
	{name: "outcome unknown", mount: "atmost", panics: "silent", refused: &refusal{409, "outcome-unknown", false}},
	{name: "outcome unknown, written", mount: "atmost", panics: "written", refused: &refusal{409, "outcome-unknown", false}},
	{name: "outcome unknown, sent", mount: "atmost", panics: "sent", refused: &refusal{409, "outcome-unknown", false}},
	{name: "panic", mount: "once", panics: "silent", waits: true},
	{name: "panic, written", mount: "once", panics: "written", waits: true},
	{name: "panic, sent", mount: "once", panics: "sent", refused: dropped},
	{name: "Redis away", mount: "away", refused: &refusal{503, "unavailable", true}},
	{name: "large body", mount: "once", large: true, refused: &refusal{413, "body-too-large", false}},
}

// A cell is one case of a row.
type cell struct{ form, answer, phase string }

func cells() (all []cell) {
	for _, form := range []string{"bare", "quoted"} {
		for _, answer := range []string{"small", "streamed", "oversized"} {
			for _, phase := range []string{"first", "concurrent", "replay", "mismatch", "mismatch while it runs"} {
				all = append(all, cell{form, answer, phase})
			}
		}
	}
	return all
}

func (c cell) running() bool { return c.phase == "concurrent" || c.phase == "mismatch while it runs" }

// last returns the expected result of the last request of a cell: a refusal, or nil and whether it
// is replayed.
func (r rule) last(c cell) (refused *refusal, replayed bool) {
	switch {
	case (r.refused == dropped || r.mount == "atmost") && strings.HasPrefix(c.phase, "mismatch"):
		return reused, false
	case r.refused != nil, r.passes, c.phase == "first":
		return r.refused, false
	case strings.HasPrefix(c.phase, "mismatch"):
		return reused, false
	case c.phase == "concurrent" && r.once != nil:
		return r.once, false
	case c.answer == "oversized":
		return dropped, false
	}
	return nil, true
}

// runs returns how often the handler runs in a cell.
func (r rule) runs(c cell) int64 {
	switch {
	case r.refused != nil:
		return 0
	case r.passes && c.phase != "first":
		return 2
	}
	return 1
}

const matrixLimit = 1000 // of the bodies of requests and of recorded responses

// matrix is a server with every middleware of the rows. Its handlers can be made to wait.
type matrix struct {
	*fixture
	mu    sync.Mutex
	gates map[string]*gate // of the cells whose first request waits
	runs  map[string]*atomic.Int64
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{gates: map[string]*gate{}, runs: map[string]*atomic.Int64{}}
	away := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		c, server := net.Pipe()
		return c, server.Close()
	}})
	t.Cleanup(func() { _ = away.Close() })
	nobody, err := lockcore.New(away, lockcore.Options{Observer: lookout.observer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nobody.Close(t.Context()) })
	m.fixture = newFixture(t, func(l *lockcore.Locker) http.Handler {
		wait := lockcore.Terms{Wait: time.Minute}
		mux := http.NewServeMux()
		for name, o := range map[string]httpmw.IdempotentOptions{
			"once": {Terms: wait}, "optional": {Terms: wait, Optional: true}, "atmost": {Terms: wait, Mode: guard.AtMostOnce},
			"nowait": {Terms: lockcore.Terms{Wait: lockcore.NoWait}}, "away": {Terms: lockcore.Terms{Wait: lockcore.NoWait}},
		} {
			o.MaxRequest, o.MaxResponse = matrixLimit, matrixLimit
			locks := l
			if name == "away" {
				locks = nobody
			}
			mux.Handle("/"+name, idempotent(locks, o)(http.HandlerFunc(m.answer)))
		}
		return mux
	})
	return m
}

// answer is the handler of every cell.
func (m *matrix) answer(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("Panic") {
	case "silent":
		panic(http.ErrAbortHandler)
	case "written":
		w.WriteHeader(http.StatusCreated)
		panic(http.ErrAbortHandler)
	case "sent":
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	id := r.Header.Get("Cell")
	m.mu.Lock()
	gate, runs := m.gates[id], m.runs[id]
	m.mu.Unlock()
	n := runs.Add(1)
	if gate != nil {
		gate.entered <- struct{}{}
		<-gate.leave
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", n))
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusCreated)
	parts := map[string][]string{
		"small": {"one"}, "streamed": {"one", "two", "three"},
		"oversized": {strings.Repeat("x", matrixLimit), "and more", strings.Repeat("y", matrixLimit)},
	}[r.Header.Get("Answer")]
	for _, part := range parts {
		_, _ = io.WriteString(w, part)
		if len(parts) > 1 {
			_ = http.NewResponseController(w).Flush()
		}
	}
	_, _ = fmt.Fprint(w, n)
}

// Each row of the contract is tested with each form of the key, each kind of response, and each
// moment at which a request may come.
// Shows: H1, H13
func TestMatrix(t *testing.T) {
	m := newMatrix(t)
	n := 0
	for _, r := range contract {
		n += len(cells())
		t.Run(r.name, func(t *testing.T) {
			if r.mount == "away" {
				testlevel.Full(t) // it waits for more than a second
			}
			var wg sync.WaitGroup
			for _, c := range cells() {
				if r.mount == "away" { // each waits until the Locker finds Redis unavailable
					wg.Go(func() { m.check(t, r, c) })
				} else {
					m.check(t, r, c)
				}
			}
			wg.Wait()
		})
	}
	t.Logf("%d cells", n)
}

// check runs a cell.
func (m *matrix) check(t *testing.T, r rule, c cell) {
	t.Helper()
	id := fmt.Sprintf("%s/%s/%s/%s", r.name, c.form, c.answer, c.phase)
	runs := new(atomic.Int64)
	m.mu.Lock()
	m.runs[id] = runs
	if c.running() && r.refused == nil {
		m.gates[id] = newGate(nil)
	}
	gate := m.gates[id]
	m.mu.Unlock()
	if r.panics != "" {
		req := m.ask(r, c, id, "bare", "body")
		req.Header.Set("Panic", r.panics)
		req.GetBody = nil  // so that the client of net/http does not repeat the request
		_, _ = m.send(req) // no response, or a part of it
	}
	first, last := m.play(t, r, c, id, gate)
	refused, replayed := r.last(c)
	wantAnswer(t, id, last, refused, replayed)
	switch {
	case c.phase == "first":
	case r.refused != nil:
		wantAnswer(t, id+", first", first, r.refused, false)
	default:
		wantAnswer(t, id+", first", first, nil, false)
	}
	if replayed {
		wantEqual(t, id, first, last)
	}
	if runs.Load() != r.runs(c) {
		t.Errorf("%s: %d runs, want %d", id, runs.Load(), r.runs(c))
	}
}
