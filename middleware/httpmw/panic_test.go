package httpmw_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// What a panic leaves depends on what the handler has written and the client has seen before.
// Shows: H13
func TestPanicOutcomes(t *testing.T) {
	sent := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("x", 11)) // above MaxResponse
			_ = http.NewResponseController(w).Flush()
		}
	}
	written := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, row := range map[string]struct {
		before        http.HandlerFunc
		least, most   lockcore.State
		storesSuccess lockcore.State // with StoreSuccess instead of StoreFinal
	}{
		"nothing":        {func(http.ResponseWriter, *http.Request) {}, lockcore.StateFree, lockcore.StateAbandoned, lockcore.StateFree},
		"a header":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/") }, lockcore.StateFree, lockcore.StateAbandoned, lockcore.StateFree},
		"early hints":    {written(http.StatusEarlyHints), lockcore.StateFree, lockcore.StateAbandoned, lockcore.StateFree},
		"a status":       {written(http.StatusCreated), lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"a 5xx":          {written(http.StatusInternalServerError), lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"a body":         {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "part") }, lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"a flush":        {func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"Unknown":        {func(_ http.ResponseWriter, r *http.Request) { httpmw.Unknown(r.Context()) }, lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"NoEffect":       {func(_ http.ResponseWriter, r *http.Request) { httpmw.NoEffect(r.Context()) }, lockcore.StateFree, lockcore.StateAbandoned, lockcore.StateFree},
		"a sent success": {sent(http.StatusCreated), lockcore.StateDone, lockcore.StateAbandoned, lockcore.StateDone},
		"a sent refusal": {sent(http.StatusPaymentRequired), lockcore.StateDone, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"a sent 5xx":     {sent(http.StatusInternalServerError), lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"a sent 429":     {sent(http.StatusTooManyRequests), lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"a sent 409 with Retry-After": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "1")
			sent(http.StatusConflict)(w, r)
		}, lockcore.StateAbandoned, lockcore.StateAbandoned, lockcore.StateAbandoned},
		"an event that was sent": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data\n\n")
			_ = http.NewResponseController(w).Flush()
		}, lockcore.StateDone, lockcore.StateAbandoned, lockcore.StateDone},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []struct {
				o    httpmw.IdempotentOptions
				want lockcore.State
			}{
				{httpmw.IdempotentOptions{}, row.least},
				{httpmw.IdempotentOptions{Store: httpmw.StoreSuccess}, row.storesSuccess},
				{httpmw.IdempotentOptions{Mode: guard.AtMostOnce}, row.most},
			} {
				testPanic(t, mode.o, row.before, mode.want)
			}
		})
	}
}

// testPanic runs before and then panics. It checks the state of the key, and what the next request
// gets.
func testPanic(t *testing.T, o httpmw.IdempotentOptions, before http.HandlerFunc, want lockcore.State) {
	t.Helper()
	var runs, takeovers atomic.Int64
	var key atomic.Value
	o.MaxResponse = 10
	f, fr := fronted(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key.Store(httpmw.Key(r.Context()))
		if runs.Add(1) == 1 {
			before(w, r)
			panic(http.ErrAbortHandler)
		}
		if _, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context())); tookOver {
			takeovers.Add(1)
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	if a, err := f.send(f.request("POST", "/orders", "body", "Idempotency-Key", "k")); err == nil {
		t.Errorf("got %d %q, want a broken connection", a.status, a.body)
	}
	if got := <-fr.done; got != any(http.ErrAbortHandler) {
		t.Errorf("panicked with %v", got)
	}
	name, _ := key.Load().(string)
	e, err := idempotency.Lookup(t.Context(), f.locks, name)
	if err != nil || e.State != want {
		t.Errorf("mode %d, store %d: the key is %v, %v; want %v", o.Mode, o.Store, e.State, err, want)
	}
	switch {
	case want == lockcore.StateDone:
		f.wantProblem(f.post("k"), 409, "not-replayable")
	case o.Mode == guard.AtMostOnce:
		f.wantProblem(f.post("k"), 409, "outcome-unknown")
	default:
		f.wantRan(f.post("k"), 202)
	}
	if tookOver := takeovers.Load() > 0; tookOver != (want == lockcore.StateAbandoned && o.Mode == guard.AtLeastOnce) {
		t.Errorf("mode %d, store %d: takeover reported: %v", o.Mode, o.Store, tookOver)
	}
}
