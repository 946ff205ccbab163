package inspect

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Task is what a queue knows of a task, see [Options.Tasks]. State is the queue's own word: active,
// pending, scheduled, retry, archived or completed of asynq. Next is when the task comes back, or zero.
type Task = operator.Task

// Action is what someone did or tried to do on the page, see [Options.Audit].
type Action struct {
	Time  time.Time
	Actor string     // see Options.Actor
	Verb  string     // revoke, clear, wake, pause, end-pause, limit or end-limit
	Kind  event.Kind // of the key
	Key   string     // the whole key, not what ShowKey returns
	// Details of pause and limit: their time, bounds and reason; otherwise empty.
	Details string
	Holder  event.Holder // at the time of the action
	Err     error        // why it failed, after ErrUnavailable perhaps done; nil: done
}

// Options of [New]. The zero value is a page that shows keys and changes nothing.
type Options struct {
	// Allow decides who may act: revoke, clear, wake, pause and limit. Its error is shown with status
	// 403. Default: no one, and the handler has no route that changes anything. Who may read is decided
	// in front of the handler, by your own middleware.
	Allow func(*http.Request) error
	// Actor names who acts, for Audit. Default: the address of the client.
	Actor func(*http.Request) string
	// Audit is called after each action, also a refused or failed one. Default: none. It must not block
	// for long, because the response waits for it.
	Audit func(context.Context, Action)
	// ShowKey returns what the page shows of a key. Default: the key. If they differ, links
	// contain no key, and are valid until the process ends.
	ShowKey func(kind event.Kind, key string) string
	// Record returns what the page shows of the record of a done key. Default: only its outcome,
	// error, codec and size.
	Record func(key string, r idempotency.Content) string
	// Pace is the time between two steps of the walk over all keys, see [doctor.ListOptions.Pace].
	// Default: 20 ms. Negative: no walk, so that only keys that are looked up are shown.
	Pace time.Duration
	// TraceURL links the trace of a holder: an http or https URL that contains {trace_id}. Default: none.
	TraceURL string
	// Tasks returns the tasks with an ID, one for each queue that has it. Then the page explains why a
	// task waits. Default: none.
	Tasks func(ctx context.Context, id string) ([]Task, error)
	// HTTPKey returns the key of an HTTP request, such as the KeyOf of httpmw.IdempotentOptions. Then
	// the page finds the key of a request. Default: none.
	HTTPKey func(scope, method, path, key string) (string, error)
}

const (
	defaultPace = 20 * time.Millisecond
	maxPace     = time.Minute
	traceID     = "{trace_id}"
)

// Validate reports every problem of o at once.
func (o Options) Validate() error {
	var pace, trace error
	if o.Pace > maxPace {
		pace = fmt.Errorf("inspect: Options.Pace is %v, must be at most %v", o.Pace, maxPace)
	}
	if o.TraceURL != "" {
		u, err := url.Parse(strings.ReplaceAll(o.TraceURL, traceID, "0"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(o.TraceURL, traceID) {
			trace = fmt.Errorf("inspect: Options.TraceURL is %q, must be an http or https URL that contains %s", o.TraceURL, traceID)
		}
	}
	return errtext.Join(pace, trace)
}

// handler serves the page.
type handler struct {
	locks  *lockcore.Locker
	o      Options
	walker *walker
	secret [32]byte    // of the nonces of the references in links
	hidden cipher.AEAD // encrypts them

	mu      sync.Mutex // guards the fields below
	streams int
	servers map[*http.Server]chan struct{} // that have streams; closed with Shutdown
}

// New returns a handler that shows the keys of locks. Mount it with a trailing slash:
//
//	mux.Handle("/locks/", http.StripPrefix("/locks", inspect.New(locks, inspect.Options{})))
//
// It has no authentication: put your own middleware in front of it. Its URLs are relative, so it works
// below any prefix. One walk reads all keys for all viewers, see Options.Pace. It ends a minute after
// the last viewer. New panics if locks is nil or o is not valid.
func New(locks *lockcore.Locker, o Options) http.Handler {
	if locks == nil {
		panic("inspect: New: locks is nil")
	}
	if err := o.Validate(); err != nil {
		panic(err)
	}
	if o.Actor == nil {
		o.Actor = func(r *http.Request) string { return r.RemoteAddr }
	}
	if o.Audit == nil {
		o.Audit = func(context.Context, Action) {}
	}
	if o.ShowKey == nil {
		o.ShowKey = func(_ event.Kind, key string) string { return key }
	}
	if o.Pace == 0 {
		o.Pace = defaultPace
	}
	h := &handler{locks: locks, o: o, walker: newWalker(locks, o.Pace), servers: map[*http.Server]chan struct{}{}}
	var key [32]byte
	_, _ = rand.Read(key[:])
	_, _ = rand.Read(h.secret[:])
	block, _ := aes.NewCipher(key[:]) // it accepts 32 bytes
	h.hidden, _ = cipher.NewGCM(block)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.screen(held))
	mux.HandleFunc("GET /stuck", h.screen(stuck))
	mux.HandleFunc("GET /find", h.find)
	mux.HandleFunc("GET /key", h.details)
	mux.HandleFunc("GET /events", h.events)
	mux.HandleFunc("GET /api/held", h.api(held))
	mux.HandleFunc("GET /api/stuck", h.api(stuck))
	mux.HandleFunc("GET /api/key", h.apiKey)
	mux.HandleFunc("GET /api/why", h.apiWhy)
	for name, kind := range map[string]string{"style.css": "text/css", "live.js": "text/javascript"} {
		mux.HandleFunc("GET /"+name, asset(name, kind))
	}
	if o.Allow != nil {
		for verb := range verbs {
			mux.HandleFunc("GET /"+verb, h.confirm(verb))
			mux.HandleFunc("POST /"+verb, h.act(verb))
		}
	}
	return secure(http.NewCrossOriginProtection().Handler(mux))
}

// secure adds the headers that each response has, and bounds the body of each request: FormValue also
// reads the body of a GET.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "same-origin",
			"Cache-Control":           "no-store",
		} {
			w.Header().Set(name, value)
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		next.ServeHTTP(w, r)
	})
}

//go:embed page.html style.css live.js
var files embed.FS

var pages = template.Must(template.New("").ParseFS(files, "page.html"))

func asset(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		http.ServeFileFS(w, r, files, name)
	}
}

// mayAct reports whether r may act.
func (h *handler) mayAct(r *http.Request) bool { return h.o.Allow != nil && h.o.Allow(r) == nil }

// named identifies a key.
type named struct {
	Kind event.Kind
	Key  string
}

// query returns the query of a link to a key. If the page shows another text, it has a reference instead
// of the key.
func (h *handler) query(n named) template.URL {
	q := url.Values{"kind": {n.Kind.String()}}
	if h.o.ShowKey(n.Kind, n.Key) == n.Key {
		q.Set("key", n.Key)
	} else {
		q.Set("ref", h.ref(n))
	}
	return template.URL(q.Encode()) //nolint:gosec // it has no character that means something in HTML or a URL
}

// ref returns the reference of a key: the key, encrypted. It is the same each time, so that a list
// that has not changed is not sent again. Another process makes another one.
func (h *handler) ref(n named) string {
	text := append([]byte{byte(n.Kind)}, n.Key...)
	mac := hmac.New(sha256.New, h.secret[:])
	mac.Write(text)
	nonce := mac.Sum(nil)[:h.hidden.NonceSize()]
	return hex.EncodeToString(h.hidden.Seal(nonce, nonce, text, nil))
}

// named returns the key of a reference of this process.
func (h *handler) named(ref string) (named, error) {
	data, err := hex.DecodeString(ref)
	if size := h.hidden.NonceSize(); err == nil && len(data) > size {
		if text, err := h.hidden.Open(nil, data[:size], data[size:], nil); err == nil {
			return named{event.Kind(text[0]), string(text[1:])}, nil
		}
	}
	return named{}, errRef
}

var (
	errKind = errors.New("kind must be exclusive or once")
	errRef  = errors.New("this link is old: it ends with the process that made it. Find the key by its name")
)

// keyOf returns the key that a request names.
func (h *handler) keyOf(r *http.Request) (named, error) {
	var n named
	switch kind := r.FormValue("kind"); kind {
	case event.KindExclusive.String():
		n.Kind = event.KindExclusive
	case event.KindOnce.String():
		n.Kind = event.KindOnce
	default:
		return n, fmt.Errorf("%w, not %q", errKind, kind)
	}
	if ref := r.FormValue("ref"); ref != "" {
		return h.named(ref)
	}
	n.Key = r.FormValue("key")
	return n, nil
}
