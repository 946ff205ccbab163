package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	callTime   = 230 * time.Millisecond
	retryAfter = time.Second
	onTheWay   = 200 * time.Millisecond // a call that arrives so soon after a 429 had begun before it
	early      = 10 * time.Millisecond  // a call so shortly before the end of a Retry-After is on time, because clocks differ
)

// trouble is the numbers of the calls that the partner answers with 429 although they keep its rules.
var trouble = []int{12, 52}

// partner is the API: POST {"tenant": "small"}. It answers 429 to a call that breaks its rules, and
// to all calls until its Retry-After is over.
type partner struct {
	began time.Time

	mu      sync.Mutex // guards the fields below
	now     int        // calls that run
	calls   []call
	refused []time.Duration // when each Retry-After began, since began

	most, mostInSecond int
	tooEarly           int // calls that began during a Retry-After
}

type call struct {
	tenant   string
	from, to time.Duration
	refused  bool
}

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Tenant string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n, refused := p.begin(body.Tenant)
	if refused {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
	} else {
		time.Sleep(callTime)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now-- // before the answer is sent
	p.calls[n].to = time.Since(p.began)
}

// begin counts a call, and decides whether it is refused.
func (p *partner) begin(tenant string) (n int, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, inSecond := time.Since(p.began), 1
	for _, c := range p.calls {
		if c.from > at-time.Second {
			inSecond++
		}
	}
	p.now++
	p.most, p.mostInSecond = max(p.most, p.now), max(p.mostInSecond, inSecond)
	quiet := time.Duration(-1) // how long ago the last Retry-After began
	if n := len(p.refused); n > 0 {
		quiet = at - p.refused[n-1]
	}
	switch {
	case quiet >= 0 && quiet < retryAfter-early:
		refused = true
		if quiet > onTheWay {
			p.tooEarly++
		}
	case p.now > atOnce || inSecond > perSecond || slices.Contains(trouble, len(p.calls)+1):
		refused = true
		p.refused = append(p.refused, at)
	}
	p.calls = append(p.calls, call{tenant: tenant, from: at, refused: refused})
	return len(p.calls) - 1, refused
}
