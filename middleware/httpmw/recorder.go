package httpmw

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// recorder is the ResponseWriter that the handler gets. It hides the server's, also from http.ResponseController: what
// reached that one would be sent before it is recorded. When the handler has returned it is over: what a goroutine writes that
// the handler left behind must not reach an answer that is being recorded. mu decides that race; like every ResponseWriter it is
// otherwise for one goroutine at a time.
type recorder struct {
	w      http.ResponseWriter
	run    *running
	limit  int  // of the body
	deaf   bool // errors of writes are not shown: the client's disconnect must not end the handler
	header http.Header

	mu        sync.Mutex
	over      bool
	status    int         // 0 until it is written
	sent      http.Header // header as it was then
	body      bytes.Buffer
	flushed   bool // a Flush was asked for
	streaming bool // what the handler writes goes to the client
}

// Header is what the handler sets, at first what stands in front of it has set.
func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader passes 1xx on and keeps the first final status. It panics on what is no status, as net/http does.
func (r *recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeaderLocked(status)
}

func (r *recorder) writeHeaderLocked(status int) {
	switch {
	case r.over:
	case status < 100 || status > 999:
		panic(fmt.Sprintf("httpmw: invalid WriteHeader code %d", status))
	case r.status != 0:
	case status < 200 && status != http.StatusSwitchingProtocols:
		before := r.w.Header().Clone()
		replace(r.w.Header(), r.header)
		r.w.WriteHeader(status)
		replace(r.w.Header(), before)
	default:
		r.status, r.sent = status, r.Header().Clone()
	}
}

// Write keeps p, or begins to stream if that would exceed the limit.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return 0, errOver
	}
	if r.status == 0 {
		r.writeHeaderLocked(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case !bodyAllowed(r.status):
		return 0, http.ErrBodyNotAllowed
	case r.streaming:
		return r.passLocked(p)
	case r.body.Len()+len(p) <= r.limit:
		return r.body.Write(p)
	}
	r.streamLocked()
	return r.passLocked(p)
}

// Flush is FlushError for who does not ask for the error.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what was written if the answer streams or is an event stream; else it only notes the wish. A proxy
// flushes a chunked answer twice however short it is, and that one can be kept.
func (r *recorder) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errOver
	}
	if r.status == 0 {
		r.writeHeaderLocked(http.StatusOK)
	}
	if t, _, _ := mime.ParseMediaType(r.sent.Get("Content-Type")); !r.streaming && t != "text/event-stream" {
		r.flushed = true
		return nil
	}
	if !r.streaming {
		r.streamLocked()
	}
	err := http.NewResponseController(r.w).Flush()
	if r.deaf && !errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// SetWriteDeadline lets a slow handler move the server's WriteTimeout.
func (r *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetWriteDeadline(t)
}

// streamLocked sends what is there; from now on nothing is kept.
func (r *recorder) streamLocked() {
	r.streaming = true
	replace(r.w.Header(), r.sent)
	r.w.WriteHeader(r.status)
	if r.body.Len() > 0 {
		_, _ = r.passLocked(r.body.Bytes())
	}
	r.body = bytes.Buffer{}
	if r.flushed {
		_ = http.NewResponseController(r.w).Flush()
	}
}

func (r *recorder) passLocked(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if err != nil && r.deaf && !errors.Is(err, http.ErrContentLength) {
		return len(p), nil
	}
	return n, err
}

// end is called when the handler has returned, or panicked.
func (r *recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// response is what the handler answered, once it has returned.
func (r *recorder) response() *response {
	r.mu.Lock()
	defer r.mu.Unlock()
	silent := r.status == 0
	if silent {
		r.writeHeaderLocked(http.StatusOK)
	}
	r.over = true
	if r.streaming {
		maps.Copy(r.w.Header(), r.header) // of what comes after the body the server sends the trailers
		return &response{status: r.status, streamed: true}
	}
	a := &response{status: r.status, silent: silent, header: r.sent, trailer: http.Header{}, body: r.body.Bytes()}
	for name, values := range r.header {
		if t, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			delete(a.header, name)
			if t = http.CanonicalHeaderKey(t); isToken(t) && !neverTrailer(t) {
				a.trailer[t] = values
			}
		}
	}
	for _, names := range r.sent["Trailer"] {
		for name := range strings.SplitSeq(names, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := r.header[name]; ok {
				a.trailer[name] = values
			}
		}
	}
	return a
}

var errOver = errors.New("httpmw: the handler has returned")

// bodyAllowed says whether an answer of this status can have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
