package main

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// provider is a payment provider. It drops the response to every fifth request, after the charge.
type provider struct {
	srv *http.Server
	url string

	mu       sync.Mutex
	requests int
	charges  map[string]int  // by buyer
	known    map[string]bool // keys
}

func newProvider(ctx context.Context) (*provider, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{url: "http://" + listener.Addr().String(), charges: map[string]int{}, known: map[string]bool{}}
	p.srv = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.srv.Serve(listener) }() // ends with close
	return p, nil
}

func (p *provider) close() error { return p.srv.Close() }

// ServeHTTP charges the buyer, unless it knows the key of the request.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	p.requests++
	drop := p.requests%5 == 0
	if key == "" || !p.known[key] {
		p.charges[r.FormValue("buyer")]++
		p.known[key] = true
	}
	p.mu.Unlock()
	if drop {
		panic(http.ErrAbortHandler) // closes the connection
	}
	w.WriteHeader(http.StatusCreated)
}

// counts returns how many buyers were charged, and how many of them more than once.
func (p *provider) counts() (charged, twice int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.charges {
		if n > 1 {
			twice++
		}
	}
	return len(p.charges), twice
}

// pay pays for the order of a user. Without a response it does not know whether the charge was
// made, so it repeats the request.
func (p *provider) pay(ctx context.Context, user int, key string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/?buyer="+strconv.Itoa(user), http.NoBody)
		if err != nil {
			return err
		}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			return res.Body.Close()
		}
		if ctx.Err() != nil {
			return err
		}
	}
}
