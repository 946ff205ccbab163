package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	maxStreams   = 32
	streamTime   = 10 * time.Minute // EventSource connects again
	pingEvery    = 15 * time.Second
	writeTime    = 10 * time.Second
	reconnectLag = 3 * time.Second
)

// update is a message of a stream.
type update struct {
	Rows string `json:"rows"` // of the table
	AsOf string `json:"as_of"`
	Walk string `json:"walk"`
	Held int    `json:"held"`
	Late int    `json:"stuck"`
}

// events streams the lines of a list, once a second if they have changed.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	l := held
	if r.FormValue("screen") == stuck.String() {
		l = stuck
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx
	if r.Method == http.MethodHead {
		return
	}
	if !h.openStream() {
		http.Error(w, fmt.Sprintf("%d pages are open already", maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer h.closeStream()
	c := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // a slow reader; not each server can
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && c.Flush() == nil
	}
	if !send("retry: %d\n\n", reconnectLag.Milliseconds()) {
		return
	}
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	shutdown := h.shutdown(r)
	end, sent, last := time.Now().Add(streamTime), time.Now(), ""
	for time.Now().Before(end) {
		v := h.view(l.String(), "", r)
		v.Match, v.Sort = r.FormValue("match"), r.FormValue("sort")
		v.Rows, v.More = h.rows(l, v)
		var b bytes.Buffer
		if err := pages.ExecuteTemplate(&b, "rows", v); err != nil {
			return
		}
		text, err := json.Marshal(update{b.String(), v.AsOf, v.Walk, v.Counts[held], v.Counts[stuck]})
		switch {
		case err != nil:
			return
		case string(text) != last:
			if !send("data: %s\n\n", text) {
				return
			}
			sent, last = time.Now(), string(text)
		case time.Since(sent) > pingEvery:
			if !send(": ping\n\n") {
				return
			}
			sent = time.Now()
		}
		select {
		case <-tick.C:
		case <-shutdown:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (h *handler) openStream() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == maxStreams {
		return false
	}
	h.streams++
	return true
}

func (h *handler) closeStream() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
}

// shutdown returns a channel that is closed when Shutdown of the server of r is called, which would
// otherwise wait for the streams.
func (h *handler) shutdown(r *http.Request) <-chan struct{} {
	srv, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if srv == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.servers[srv]
	if c == nil {
		c = make(chan struct{})
		h.servers[srv] = c
		srv.RegisterOnShutdown(sync.OnceFunc(func() { close(c) }))
	}
	return c
}
