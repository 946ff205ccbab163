package httpmw

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// recorder is the ResponseWriter of the handler. It hides the server's writer, also from
// http.ResponseController, because a response must not be sent before it is recorded. After the
// handler has returned, over is true. A goroutine of the handler, or a framework in front, may
// write later. Such a write must not change a response that is being recorded. mu decides that
// race: a write is part of the response, or it fails and late is called. Otherwise a recorder is
// for one goroutine at a time, like any ResponseWriter.
type recorder struct {
	w      http.ResponseWriter
	run    *running
	limit  int          // of the body
	deaf   bool         // hides errors of writes from the handler: the client's disconnect must not end it
	late   func()       // reports a write after the end of the handler; called without mu
	atEnd  func(func()) // calls its argument when the ctx of the handler ends
	header http.Header

	mu        sync.Mutex
	over      bool
	status    int         // 0 until it is written
	explicit  bool        // the handler called WriteHeader
	length    int64       // the Content-Length that the handler has set, or -1
	written   int64       // bytes of the body, also those that exceed length
	sent      http.Header // copy of header from when status was written
	body      bytes.Buffer
	flushed   bool // the handler called Flush
	streaming bool // writes go to the client
	hijacked  bool // the handler called Hijack, which failed
}

// Header returns the headers of the response. At first they are those that code in front has set.
func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader sends 1xx at once and keeps the first final status. It panics if status is invalid,
// as net/http does.
func (r *recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.unlock()
	silent := r.status == 0
	r.writeHeaderLocked(status)
	r.explicit = r.explicit || silent && r.status != 0
}

// unlock unlocks mu after a call of the handler. over does not change while the call has mu.
func (r *recorder) unlock() {
	over := r.over
	r.mu.Unlock()
	if over {
		r.late()
	}
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
		r.status, r.sent, r.length = status, r.Header().Clone(), -1
		if n, err := strconv.ParseInt(r.sent.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
			r.length = n
		}
	}
}

// Write keeps p, or begins to stream if p would exceed the limit.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.unlock()
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
	}
	r.written += int64(len(p))
	switch {
	case r.length >= 0 && r.written > r.length:
		return 0, http.ErrContentLength
	case r.streaming:
		return r.passLocked(p)
	case r.body.Len()+len(p) <= r.limit:
		return r.body.Write(p)
	}
	r.streamLocked()
	return r.passLocked(p)
}

// Flush is FlushError without a result.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what was written if the response is streamed or is an event stream. Otherwise it
// only sets flushed. A proxy flushes even a short chunked response, which can be recorded.
func (r *recorder) FlushError() error {
	r.mu.Lock()
	defer r.unlock()
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

// SetReadDeadline has no effect on the handler's reads, because the body has been read.
func (r *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetReadDeadline(t)
}

// SetWriteDeadline lets a slow handler extend the WriteTimeout of the server.
func (r *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetWriteDeadline(t)
}

// Hijack fails. Without this method the writer of gin panics.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hijacked = true
	return nil, nil, http.ErrNotSupported
}

// CloseNotify returns a channel that gets a value when the ctx of the handler ends. Without this
// method gin's Context.Stream panics.
func (r *recorder) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	r.atEnd(func() { gone <- true })
	return gone
}

// EnableFullDuplex has no effect on the handler's reads, because the body has been read.
func (r *recorder) EnableFullDuplex() error {
	return http.NewResponseController(r.w).EnableFullDuplex()
}

// streamLocked sends what was written, and makes later writes go to the client.
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

// end is called after the handler has panicked. It returns the beginning of the response. Its
// status is the one that the handler has written, or 0. It is streamed if the client has got that
// status.
func (r *recorder) end() *response {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return &response{status: r.status, streamed: r.streaming, header: r.sent}
}

// response returns the response of the handler, after it has returned.
func (r *recorder) response() *response {
	r.mu.Lock()
	defer r.mu.Unlock()
	silent := r.status == 0
	if silent {
		r.writeHeaderLocked(http.StatusOK)
	}
	r.over = true
	implied := r.hijacked && !r.explicit
	if r.streaming {
		maps.Copy(r.w.Header(), r.header) // the server sends the trailers among them
		return &response{status: r.status, streamed: true, implied: implied, header: r.sent}
	}
	a := &response{status: r.status, silent: silent, implied: implied, header: r.sent, trailer: http.Header{}, body: r.body.Bytes()}
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
			if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); isToken(name) && !neverTrailer(name) {
				a.trailer[name] = r.header[name]
			}
		}
	}
	return a
}

var errOver = errors.New("httpmw: the handler has returned")

// bodyAllowed reports whether a response with this status can have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
