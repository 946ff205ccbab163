package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const (
	inFlight  = 256 // greatest number of concurrent requests
	perSecond = 2000
	together  = 20 * time.Millisecond // within which half of a key's requests are sent
	apart     = 4 * time.Second       // greatest time within which the others are sent
	hurry     = 4                     // clients return this many times sooner than Retry-After says, to shorten the test
)

// crowd is the clients of workers that serve HTTP requests.
type crowd struct {
	*oracle
	t      *testing.T
	addrs  []string
	client *http.Client
	slots  chan struct{} // one for each request in flight
	wg     sync.WaitGroup
}

func newCrowd(r *run) *crowd {
	c := &crowd{oracle: r.oracle, t: r.T, slots: make(chan struct{}, inFlight)}
	c.client = &http.Client{Transport: &http.Transport{MaxIdleConns: inFlight, MaxIdleConnsPerHost: inFlight}, Timeout: patience / 2}
	for _, p := range r.slots {
		c.addrs = append(c.addrs, p.task.Load.Listen)
	}
	return c
}

// freeAddr returns an address below the ports that the system gives to connections. Otherwise a
// client that connects while no worker listens could get that very port, and be connected with
// itself.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", 12000+rand.IntN(18000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// send sends each of the keys many times: half of a key's requests together, at a random moment of
// the time, the others after it. It returns when each has its answer.
func (c *crowd) send(keys, times int) {
	type ask struct {
		key string
		at  time.Duration
	}
	var asks []ask
	span := 2*time.Second + time.Duration(keys*times)*time.Second/perSecond
	for i := range keys {
		kind := onceKinds[[]int{0, 1, 1, 2, 0, 0, 0, 0, 0, 0}[i%10]]
		for n, begin := 0, rand.N(span); n < times; n++ {
			at := begin + rand.N(together)
			if n >= (times+1)/2 {
				at = begin + rand.N(min(apart, span))
			}
			asks = append(asks, ask{fmt.Sprint(kind.name, i), at})
		}
	}
	slices.SortFunc(asks, func(a, b ask) int { return int(a.at - b.at) })
	start := time.Now()
	for _, a := range asks {
		time.Sleep(time.Until(start.Add(a.at)))
		c.slots <- struct{}{}
		c.wg.Go(func() { defer func() { <-c.slots }(); c.ask(a.key) })
	}
	c.wg.Wait()
	c.client.CloseIdleConnections()
}

// ask sends the request until it gets a final answer.
func (c *crowd) ask(key string) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		kind, retry, err := c.try(key, c.addrs[rand.IntN(len(c.addrs))])
		switch {
		case err != nil: // the worker is gone: another one may be there
			time.Sleep(rand.N(40 * time.Millisecond))
		case kind != unavailable && kind != inProgress:
			return
		default:
			time.Sleep(retry / hurry)
		}
	}
	c.t.Errorf("%s: a request was never answered", key)
}

// try sends the request once, and notes its answer.
func (c *crowd) try(key, addr string) (kind string, retry time.Duration, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+addr+"/"+kindOf(key).name, bytes.NewReader([]byte("order of "+key)))
	if err != nil {
		return "", 0, err
	}
	req.GetBody = nil // net/http must not send it again by itself: each try counts
	req.Header.Set("Authorization", "tenant")
	req.Header.Set(httpmw.HeaderKey, key)
	sent := process.Now()
	c.oracle.mu.Lock()
	if c.asked[key] == 0 {
		c.asked[key] = sent
	}
	c.oracle.mu.Unlock()
	resp, err := c.client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", 0, err
	}
	a := answer{
		kind: answerOf(resp, body), sent: sent, got: process.Now(), run: resp.Header.Get("X-Receipt"),
		sum: sumOf(resp.StatusCode, resp.Header, body), replayed: resp.Header.Get(httpmw.HeaderReplayed) != "",
	}
	c.oracle.mu.Lock()
	defer c.oracle.mu.Unlock()
	c.oracle.answers[key] = append(c.oracle.answers[key], a)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return a.kind, max(time.Duration(seconds)*time.Second, time.Second/10), nil
}

// answerOf returns the kind of an answer, or its status and the type of its problem.
func answerOf(resp *http.Response, body []byte) string {
	var problem struct{ Type string }
	if resp.Header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(body, &problem) != nil {
		problem.Type = "unreadable"
	}
	switch {
	case resp.StatusCode == http.StatusCreated:
		return done
	case resp.StatusCode == http.StatusServiceUnavailable:
		return unavailable
	case resp.StatusCode == http.StatusConflict && problem.Type == httpmw.TypeInProgress:
		return inProgress
	case resp.StatusCode == http.StatusConflict && problem.Type == httpmw.TypeOutcomeUnknown:
		return unknown
	}
	return fmt.Sprint(resp.StatusCode, " ", problem.Type)
}
