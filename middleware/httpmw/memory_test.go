package httpmw_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// heap returns the memory that objects use, including dead objects that are not yet swept.
func heap() int {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64() + s[1].Value.Uint64()) //nolint:gosec // less than 2^63
}

// A response of 1 GiB is streamed to a client that reads it. The heap of client and server together
// grows by at most 16 MiB. It is measured at every MiB that the handler writes.
// Shows: H8
func TestMemoryOfAStream(t *testing.T) {
	const size, bound = 1 << 30, 16 << 20
	before, peak := 0, 0
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 64<<10)
		for i := range size / len(chunk) {
			if n, err := w.Write(chunk); n != len(chunk) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
				return
			}
			if i%16 == 0 {
				peak = max(peak, heap())
			}
		}
	})
	r := f.request("POST", "/export", "body", "Idempotency-Key", "k")
	runtime.GC()
	before = heap()
	res, err := f.srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if n != size || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	t.Logf("1 GiB: the heap grew from %d to at most %d KiB", before>>10, peak>>10)
	if peak-before > bound {
		t.Errorf("the heap grew by %d KiB, want at most %d", (peak-before)>>10, bound>>10)
	}
	f.wantProblem(f.do("POST", "/export", "body", "Idempotency-Key", "k"), 409, "not-replayable")
}

// 64 requests with a body of 1 MiB wait for another one. Each uses less memory than twice its body.
// The body is read completely before the key is acquired.
func TestMemoryOfWaitingRequests(t *testing.T) {
	const waiters, size = 64, 1<<20 - 64
	g := newGate(created)
	f := guarded(t, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: time.Minute}}, g.ServeHTTP)
	f.events.waiting = make(chan struct{}, waiters)
	body := strings.Repeat("x", size)
	answers := make(chan answer, waiters+1)
	start := func() {
		r := f.request("POST", "/orders", "", "Idempotency-Key", "k")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), size
		go func() { // ends with the gate
			a, err := f.send(r)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	start()
	<-g.entered
	runtime.GC()
	before := heap()
	for range waiters {
		start()
	}
	for range waiters {
		<-f.events.waiting
	}
	runtime.GC()
	per := (heap() - before) / waiters
	t.Logf("%d requests that wait, each with %d KiB: %d KiB each", waiters, size>>10, per>>10)
	if per > 2*size {
		t.Errorf("%d bytes each", per)
	}
	close(g.leave)
	for i := range waiters + 1 {
		if a := <-answers; a.status != 201 {
			t.Error(fmt.Sprint(i, ": got ", a.status, a.body))
		}
	}
}
