package httpsoak_test

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Steps in the life of a run, in order, at which a process can be killed.
const (
	atGranted  = "granted"  // the process has the key, the handler has not begun
	atBegun    = "begun"    // the begin line is written
	atWorking  = "working"  // in the middle
	atEnded    = "ended"    // the end line is written, the handler has not returned
	atRecorded = "recorded" // the answer is about to be sent
	atSent     = "sent"     // it has been sent, the request is not over
)

// run is the handler.
type run struct {
	s *server
	m mount
}

const (
	usual   = 50 * time.Millisecond // longest of most runs
	longOne = 25                    // one run in this many takes longer
)

func (h *run) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, s := r.Context(), h.s
	l := line{Op: opBegin, Key: r.Header.Get(httpmw.HeaderKey), Guard: httpmw.Key(ctx), Run: crand.Text()}
	l.Attempt, l.TookOver = guard.Attempt(ctx, l.Guard)
	s.write(l)
	s.mayDie(atBegun, h.m.path)
	d := rand.N(usual)
	if rand.IntN(longOne) == 0 {
		d = rand.N(s.Longest)
	}
	part := rand.N(d + 1)
	ok := work(ctx, part)
	s.mayDie(atWorking, h.m.path)
	if ok = ok && work(ctx, d-part); !ok {
		s.write(line{Op: opGaveUp, Key: l.Key, Run: l.Run, Text: fmt.Sprint(context.Cause(ctx))})
		http.Error(w, "gave up", http.StatusInternalServerError)
		return
	}
	body := randomAnswer(w.Header(), l.Run)
	s.write(line{Op: opEnd, Key: l.Key, Run: l.Run, Sum: sum(http.StatusCreated, w.Header(), body)})
	s.mayDie(atEnded, h.m.path)
	w.WriteHeader(http.StatusCreated)
	cut := rand.IntN(len(body))
	_, _ = w.Write(body[:cut])
	if rand.IntN(2) == 0 {
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = w.Write(body[cut:])
}

// work takes d. It returns false if ctx ended before.
func work(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// randomAnswer fills h and returns a body that begins with the run's name; no two are alike.
func randomAnswer(h http.Header, run string) []byte {
	h.Set("Content-Type", []string{"application/octet-stream", "text/plain; charset=utf-8"}[rand.IntN(2)])
	h.Set("X-Receipt", run)
	if rand.IntN(2) == 0 {
		h.Set("Location", "/done/"+run)
		h.Set("Etag", fmt.Sprintf(`"%x"`, rand.Uint64()))
	}
	for range rand.IntN(4) {
		h.Add("X-Part", crand.Text())
	}
	body := make([]byte, len(run)+1+rand.IntN(6<<10))
	_, _ = crand.Read(body)
	copy(body, run+"\n")
	return body
}

// doomed is a process that dies the next time that a run of a mount reaches a step.
type doomed struct {
	journal *journal
	next    atomic.Pointer[doom]
}

type doom struct{ step, path string }

// ServeHTTP takes the order.
func (d *doomed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d.next.Store(&doom{step: q.Get("step"), path: q.Get("path")})
	w.WriteHeader(http.StatusAccepted)
}

func (d *doomed) mayDie(step, path string) { d.dieAfter(step, path, func() {}) }

// dieAfter calls last and kills the process, if the process waits for this step.
func (d *doomed) dieAfter(step, path string, last func()) {
	next := d.next.Load()
	if next == nil || *next != (doom{step, path}) || !d.next.CompareAndSwap(next, nil) {
		return
	}
	last()
	d.journal.write(line{Op: opDie, Text: step})
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}
