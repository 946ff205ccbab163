package httpsoak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const (
	inFlight  = 256 // greatest number of concurrent requests
	perSecond = 2000
	together  = 20 * time.Millisecond // within which half of a key's requests are sent
	apart     = 4 * time.Second       // greatest time within which the others are sent
	giveUp    = time.Minute           // of one request, with all its tries
	hurry     = 4                     // clients return this many times sooner than Retry-After says, to shorten the test
)

// ask is one request of one client, and the time at which it is sent.
type ask struct {
	key int
	at  time.Duration
}

// try is one send of a request, with its answer.
type try struct {
	sent, got int64 // ns of the machine's clock
	status    int
	problem   string // type of one
	replayed  bool
}

// keyTries has the answers that clients got for one key.
type keyTries struct {
	name  string
	mount mount
	mu    sync.Mutex
	since int64 // time of the first send, with an answer or without
	tries []try
	first *answer // with 201
	wrong []string
}

type answer struct {
	header http.Header
	body   []byte
}

// crowd has all clients.
type crowd struct {
	addrs   []string
	client  *http.Client
	slots   chan struct{} // one for each request in flight
	keys    []*keyTries
	wg      sync.WaitGroup // of lures
	mu      sync.Mutex
	lures   []*keyTries
	asked   atomic.Int64
	refused atomic.Int64 // tries without an answer
	dials   atomic.Int64
	open    atomic.Int64 // connections
	peak    atomic.Int64 // of them
}

func newCrowd(addrs []string, keys int) *crowd {
	c := &crowd{addrs: addrs, slots: make(chan struct{}, inFlight)}
	c.client = &http.Client{Transport: &http.Transport{DialContext: c.dial, MaxIdleConns: inFlight, MaxIdleConnsPerHost: inFlight}, Timeout: giveUp / 2}
	for i := range keys {
		m := orders
		switch i % 10 {
		case 1, 2:
			m = payouts
		case 3:
			m = quick
		}
		c.keys = append(c.keys, &keyTries{name: fmt.Sprint("key", i), mount: m})
	}
	return c
}

// span returns the time within which requests are sent.
func span(keys, clients int) time.Duration {
	return 2*time.Second + time.Duration(keys*clients)*time.Second/perSecond
}

// moments returns the requests with their times. Each key has a time at which half of its requests
// are sent together. The others follow gradually.
func moments(keys, clients int) []ask {
	var asks []ask
	span := span(keys, clients)
	for key := range keys {
		begin := rand.N(span)
		for i := range clients {
			at := begin + rand.N(together)
			if i >= (clients+1)/2 {
				at = begin + rand.N(min(apart, span))
			}
			asks = append(asks, ask{key, at})
		}
	}
	slices.SortFunc(asks, func(a, b ask) int { return int(a.at - b.at) })
	return asks
}

// send sends all requests. It calls sent after the last one, which also ends the lures. It returns
// when all requests have their answers.
func (c *crowd) send(asks []ask, sent func()) {
	var wg sync.WaitGroup
	todo, start := make(chan ask), time.Now()
	for range min(inFlight, len(asks)) {
		wg.Go(func() {
			for a := range todo {
				c.ask(c.keys[a.key])
			}
		})
	}
	for _, a := range asks {
		time.Sleep(time.Until(start.Add(a.at)))
		todo <- a
	}
	close(todo)
	sent()
	wg.Wait()
	c.wg.Wait()
	c.client.CloseIdleConnections()
}

// lure starts a run of a new key under m at addr. When that run has ended, mostly by a kill, other
// clients send the same request.
func (c *crowd) lure(m mount, addr string, clients int) {
	c.mu.Lock()
	k := &keyTries{name: fmt.Sprint("lure", len(c.lures)), mount: m}
	c.lures = append(c.lures, k)
	c.mu.Unlock()
	c.wg.Go(func() {
		if t, a, _, err := c.try(k, addr); err == nil {
			k.note(t, a)
		}
		for i := range clients {
			c.wg.Go(func() {
				wait := rand.N(together)
				if i%2 == 0 {
					wait += rand.N(apart / 2)
				}
				time.Sleep(wait)
				c.ask(k)
			})
		}
	})
}

// ask sends the request until it gets a final answer.
func (c *crowd) ask(k *keyTries) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	c.asked.Add(1)
	for end := time.Now().Add(giveUp); time.Now().Before(end); {
		t, a, retry, err := c.try(k, c.addrs[rand.IntN(len(c.addrs))])
		if err != nil { // the server is gone: another one may be there
			c.refused.Add(1)
			time.Sleep(rand.N(40 * time.Millisecond))
			continue
		}
		k.note(t, a)
		again := t.status == http.StatusServiceUnavailable || t.problem == httpmw.TypeInProgress
		if !again {
			return
		}
		time.Sleep(retry / hurry)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong = append(k.wrong, "a request was never answered")
}

func (c *crowd) try(k *keyTries, addr string) (t try, a *answer, retry time.Duration, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+addr+k.mount.path, bytes.NewReader([]byte("order of "+k.name)))
	if err != nil {
		return t, nil, 0, err
	}
	req.GetBody = nil // net/http must not send it again by itself: each try counts
	req.Header.Set("Authorization", "tenant")
	req.Header.Set(httpmw.HeaderKey, k.name)
	t.sent = k.send()
	resp, err := c.client.Do(req)
	if err != nil {
		return t, nil, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return t, nil, 0, err
	}
	t.got, t.status, t.replayed = chaos.Now(), resp.StatusCode, resp.Header.Get(httpmw.HeaderReplayed) != ""
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var p struct{ Type string }
		if err := json.Unmarshal(body, &p); err != nil {
			p.Type = "unreadable"
		}
		t.problem = p.Type
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	resp.Header.Del("Date")
	resp.Header.Del(httpmw.HeaderReplayed)
	return t, &answer{resp.Header, body}, max(time.Duration(seconds)*time.Second, time.Second/10), nil
}

func (k *keyTries) send() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := chaos.Now()
	if k.since == 0 {
		k.since = at
	}
	return at
}

// note compares an answer with the first that the key got, byte for byte.
func (k *keyTries) note(t try, a *answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tries = append(k.tries, t)
	switch {
	case t.status != http.StatusCreated:
	case k.first == nil:
		k.first = a
	case !maps.EqualFunc(k.first.header, a.header, slices.Equal[[]string]) || !bytes.Equal(k.first.body, a.body):
		k.wrong = append(k.wrong, fmt.Sprintf("answers differ: %v with %d bytes, and %v with %d bytes",
			k.first.header, len(k.first.body), a.header, len(a.body)))
	}
}

func (c *crowd) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.dials.Add(1)
	n := c.open.Add(1)
	for p := c.peak.Load(); n > p && !c.peak.CompareAndSwap(p, n); p = c.peak.Load() {
	}
	return &countedConn{Conn: conn, open: &c.open}, nil
}

// countedConn is a connection that no longer counts when it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
