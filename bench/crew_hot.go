package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const (
	leastWork, mostWork   = 20 * time.Millisecond, 50 * time.Millisecond  // of a handler
	leastPause, mostPause = 50 * time.Millisecond, 150 * time.Millisecond // between two requests of a measured client
	hotClients            = 1000
	hotPause              = time.Second     // at most, after a request for the hot key was served
	hotSettle             = 3 * time.Second // until the first clients of the hot key have waited and repeated their requests

	noMaxWaiting = 1_000_000
)

// hotTask measures clients that have one key each. At the same time other clients, which are not
// measured, all use one more key, the hot key. The server guards every key with httpmw.Exclusive. A
// client that gets a 409 repeats its request after Retry-After.
type hotTask struct {
	*crew
	clients int // of the hot key, whose number is hotKey
	hotKey  int
	target  string
	client  *http.Client

	present, mostPresent atomic.Int64 // requests for the hot key in the server
	served, refused      atomic.Int64 // in the window, of the hot key
}

// newHotTask starts the server, which ends with the process.
func newHotTask(j job, l *holdfastLocker, seen *witness) *hotTask {
	t := &hotTask{clients: hotClients, hotKey: j.Point.Keys - 1}
	var o httpmw.ExclusiveOptions
	switch j.Library {
	case quietName:
		t.clients = 0
	case unboundedName:
		o.Terms.MaxWaiting = noMaxWaiting
	}
	key := func(r *http.Request) (guard.Key, error) {
		return guard.Key{Class: "account", ID: j.Prefix + r.PathValue("key")}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("POST /{key}", t.counted(atMost(j.Point.Most, httpmw.Exclusive(l.locks, key, o)(handler(seen)))))
	t.target = httptest.NewServer(mux).URL
	clients := j.Point.Workers + t.clients
	t.client = &http.Client{Transport: &http.Transport{MaxIdleConns: clients, MaxIdleConnsPerHost: clients}}
	t.crew = newCrew(j.Point.Workers, seen, t.turn)
	return t
}

// handler works for a while.
func handler(seen *witness) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := strconv.Atoi(r.PathValue("key"))
		if seen.enter(key, 0) {
			defer seen.leave(key, 0)
		}
		time.Sleep(between(leastWork, mostWork))
		w.WriteHeader(http.StatusCreated)
	})
}

// atMost admits at most n requests to next at once, in the order of their arrival. The others wait.
func atMost(n int, next http.Handler) http.Handler {
	if n == 0 {
		return next
	}
	places := semaphore.NewWeighted(int64(n))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if places.Acquire(r.Context(), 1) != nil {
			return // the client has disconnected
		}
		defer places.Release(1)
		next.ServeHTTP(w, r)
	})
}

// counted counts the requests for the hot key that are in the server.
func (t *hotTask) counted(next http.Handler) http.Handler {
	hot := strconv.Itoa(t.hotKey)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("key") == hot {
			n := t.present.Add(1)
			defer t.present.Add(-1)
			for old := t.mostPresent.Load(); n > old && !t.mostPresent.CompareAndSwap(old, n); old = t.mostPresent.Load() {
			}
		}
		next.ServeHTTP(w, r)
	})
}

// post sends one request. If the key is busy, it returns the time until the next try.
func (t *hotTask) post(ctx context.Context, key int) (again time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/%d", t.target, key), http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := t.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, err
	}
	switch res.StatusCode {
	case http.StatusCreated:
		return 0, nil
	case http.StatusConflict:
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second, err
	}
	return 0, fmt.Errorf("bench: the response is %s", res.Status)
}

// turn is a pause and one measured request.
func (t *hotTask) turn(ctx context.Context, w *worker) error {
	w.since.Store(0)
	time.Sleep(between(leastPause, mostPause))
	w.since.Store(time.Now().UnixNano())
	again, err := t.post(ctx, w.index)
	if again > 0 {
		err = fmt.Errorf("bench: key %d is busy", w.index)
	}
	if err == nil {
		w.granted()
	}
	return err
}

// want runs one client of the hot key.
func (t *hotTask) want() {
	time.Sleep(between(0, hotPause)) // clients do not start all at once
	for t.ctx.Err() == nil {
		again, err := t.post(t.ctx, t.hotKey)
		if err == nil && t.phase.Load() == measuring {
			if again > 0 {
				t.refused.Add(1)
			} else {
				t.served.Add(1)
			}
		}
		if again == 0 {
			again = between(0, hotPause)
		}
		time.Sleep(again)
	}
}

func (t *hotTask) warmUp() error {
	if err := t.crew.warmUp(); err != nil {
		return err
	}
	for range t.clients {
		go t.want() // ends when collect cancels, or with the process
	}
	time.Sleep(hotSettle)
	return nil
}

func (t *hotTask) open() error {
	t.mostPresent.Store(t.present.Load())
	return t.crew.open()
}

func (t *hotTask) collect(o *outcome) {
	t.crew.collect(o)
	o.Extra[hotServed], o.Extra[hotRefused] = float64(t.served.Load())/o.Window.Seconds(), float64(t.refused.Load())/o.Window.Seconds()
	o.Extra[hotPresent] = float64(t.mostPresent.Load())
}

func between(least, most time.Duration) time.Duration { return least + rand.N(most-least) }
