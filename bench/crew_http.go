package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const (
	idempotencyKey = "Idempotency-Key"
	charge         = `{"amount":499}`
	receipt        = `{"id":"ch_1","amount":499,"currency":"eur","status":"succeeded"}`
)

// newHandler returns a handler whose response to each key is in Redis. Idempotent records it when
// the first request runs. The floor stores it here and reads it with GET.
func newHandler(j job, l locker) (http.Handler, error) {
	switch l := l.(type) {
	case *holdfastLocker:
		scope := func(*http.Request) (string, error) { return j.Prefix, nil }
		return httpmw.Idempotent(l.locks, scope, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}})(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeCharge(w, []byte(receipt)) })), nil
	case floor:
		for i := range j.Point.Keys {
			if err := l.rdb.Set(context.Background(), j.Prefix+strconv.Itoa(i), receipt, 0).Err(); err != nil {
				return nil, err
			}
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := l.rdb.Get(r.Context(), j.Prefix+r.Header.Get(idempotencyKey)).Bytes()
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			writeCharge(w, body)
		}), nil
	}
	return nil, fmt.Errorf("bench: no handler for %s", j.Library)
}

func writeCharge(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // into memory
}

// alone calls a handler without a server.
type alone struct{ http.Handler }

func (a alone) RoundTrip(r *http.Request) (*http.Response, error) {
	r.RequestURI = r.URL.Path // as a server sets it
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Result(), nil
}

// newHTTPCrew returns a crew with one client of h, which sends one request after another. It
// requests each key once before it returns. The server ends with the process.
func newHTTPCrew(j job, h http.Handler, seen *witness) (*crew, error) {
	var transport http.RoundTripper = alone{h}
	target := "http://bench"
	if j.Point.Server {
		server := httptest.NewServer(h)
		transport, target = server.Client().Transport, server.URL
	}
	request := func(ctx context.Context, key int) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, target+"/charges", strings.NewReader(charge))
		if err != nil {
			return err
		}
		r.Header.Set(idempotencyKey, strconv.Itoa(key))
		res, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil && (res.StatusCode != http.StatusCreated || string(body) != receipt) {
			err = fmt.Errorf("bench: the response is %d %s", res.StatusCode, body)
		}
		return err
	}
	for key := range j.Point.Keys {
		if err := request(context.Background(), key); err != nil {
			return nil, err
		}
	}
	n := 0
	return newCrew(1, seen, func(ctx context.Context, w *worker) error {
		n++
		err := request(ctx, n%j.Point.Keys)
		if err == nil {
			w.granted(1)
		}
		return err
	}), nil
}
