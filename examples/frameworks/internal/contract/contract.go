// Package contract tests what every program of this module promises, over real connections.
package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Start starts a program until the test ends, and returns its URL.
type Start func(t *testing.T, locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) string

// Served is the Start of a program whose routes are an http.Handler.
func Served(routes func(*lockcore.Locker, *bank.Bank, httpmw.IdempotentOptions) http.Handler) Start {
	return func(t *testing.T, locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) string {
		srv := httptest.NewServer(routes(locks, b, o))
		t.Cleanup(srv.Close)
		return srv.URL
	}
}

// Answer is a response.
type Answer struct {
	Status   int
	Body     string
	Type     string // Content-Type
	Replayed bool
}

// Program is a program under test.
type Program struct {
	T      *testing.T
	URL    string
	Bank   *bank.Bank
	Events *locktest.Recorder
	Runs   atomic.Int64 // of Bank.Provider
}

// Open starts a program. provider is called for each charge.
func Open(t *testing.T, start Start, o httpmw.IdempotentOptions, provider func(ctx context.Context, account string, amount int) error) *Program {
	t.Helper()
	p := &Program{T: t, Bank: &bank.Bank{}, Events: &locktest.Recorder{}}
	p.Bank.Provider = func(ctx context.Context, account string, amount int) error {
		p.Runs.Add(1)
		return provider(ctx, account, amount)
	}
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: p.Events})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the server is closed
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.URL = start(t, locks, p.Bank, o)
	return p
}

// Request makes a POST.
func (p *Program) Request(path, key, body string) *http.Request {
	p.T.Helper()
	r, err := http.NewRequestWithContext(p.T.Context(), http.MethodPost, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.T.Fatal(err)
	}
	r.Header.Set("Authorization", "acme")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	r.GetBody = nil // so that net/http's client does not repeat the request
	return r
}

// Send returns the response to r. It may be called on any goroutine.
func Send(r *http.Request) (Answer, error) {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	return Read(res)
}

// Read reads res to its end.
func Read(res *http.Response) (Answer, error) {
	body, err := io.ReadAll(res.Body)
	return Answer{res.StatusCode, string(body), res.Header.Get("Content-Type"), res.Header.Get("Idempotent-Replayed") == "true"}, err
}

// Post sends a POST.
func (p *Program) Post(path, key, body string) Answer {
	p.T.Helper()
	a, err := Send(p.Request(path, key, body))
	if err != nil {
		p.T.Fatal(err)
	}
	return a
}

// WantReplay checks that the second response is a replay of the first one.
func (p *Program) WantReplay(first, second Answer, status int) {
	p.T.Helper()
	if first.Status != status || first.Replayed {
		p.T.Errorf("got %+v, want %d of a run", first, status)
	}
	first.Replayed = true
	if second != first {
		p.T.Errorf("the repeat got %+v, want %+v", second, first)
	}
}

const pay = "/accounts/42/payments"

// Run tests a program.
func Run(t *testing.T, start Start) {
	t.Helper()
	t.Run("answers", func(t *testing.T) { testAnswers(t, start) })
	t.Run("statement", func(t *testing.T) { testStatement(t, start) })
	t.Run("panic", func(t *testing.T) { testPanic(t, start) })
	t.Run("one at a time", func(t *testing.T) { testOneAtATime(t, start) })
	t.Run("disconnect", func(t *testing.T) { testDisconnect(t, start) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, start) })
}

// Each outcome of the handler is answered with its status, and recorded with it if Store says so.
func testAnswers(t *testing.T, start Start) {
	t.Helper()
	for name, o := range map[string]httpmw.IdempotentOptions{"StoreFinal": {}, "StoreAll": {Store: httpmw.StoreAll}} {
		p := Open(t, start, o, func(_ context.Context, _ string, amount int) error {
			switch amount {
			case 402:
				return bank.ErrDeclined
			case 500:
				return errors.New("the provider is down")
			}
			return nil
		})
		for body, status := range map[string]int{`{"amount":5}`: 201, `{"amount":0}`: 422, `{"amount":402}`: 402, `{"amount":500}`: 500, `{`: 400} {
			key := fmt.Sprint(status)
			first, second := p.Post(pay, key, body), p.Post(pay, key, body)
			if status == 500 && o.Store == httpmw.StoreFinal {
				if second.Status != 500 || second.Replayed {
					t.Errorf("%s: the repeat of a 500 got %+v", name, second)
				}
				continue
			}
			p.WantReplay(first, second, status)
			if first.Body == "" {
				t.Errorf("%s: %d has no body", name, status)
			}
		}
		wantRuns := int64(3)
		if o.Store == httpmw.StoreFinal {
			wantRuns = 4
		}
		if p.Runs.Load() != wantRuns {
			t.Errorf("%s: %d runs, want %d", name, p.Runs.Load(), wantRuns)
		}
		p.wantAudits()
	}
}

// wantAudits checks that the ctx of the request had not ended after a response.
func (p *Program) wantAudits() {
	p.T.Helper()
	for _, err := range p.Bank.Audits() {
		if err != nil {
			p.T.Fatalf("the ctx of the request after the response: %v", err)
		}
	}
	if events := locktest.EventsOf[event.Misconfigured](p.Events); len(events) > 0 {
		p.T.Errorf("reported: %v", events)
	}
}

// A response that is written line by line is recorded, because it is not an event stream.
func testStatement(t *testing.T, start Start) {
	t.Helper()
	p := Open(t, start, httpmw.IdempotentOptions{}, nil)
	first := p.Post("/accounts/42/statements", "k", "")
	p.WantReplay(first, p.Post("/accounts/42/statements", "k", ""), 200)
	if first.Body != "0\n1\n2\n" || first.Type != "text/csv" {
		t.Errorf("got %+v", first)
	}
	p.wantAudits()
}

// A panic reaches the framework's recovery in front, and nothing is recorded.
func testPanic(t *testing.T, start Start) {
	t.Helper()
	panics := true
	p := Open(t, start, httpmw.IdempotentOptions{}, func(context.Context, string, int) error {
		if panics {
			panics = false
			panic("a mistake")
		}
		return nil
	})
	if a := p.Post(pay, "k", `{"amount":5}`); a.Status != 500 || a.Replayed {
		t.Errorf("got %+v", a)
	}
	p.WantReplay(p.Post(pay, "k", `{"amount":5}`), p.Post(pay, "k", `{"amount":5}`), 201)
	p.wantAudits()
}

// Payments of one account run one at a time, also those with different keys. Another account is
// not affected.
func testOneAtATime(t *testing.T, start Start) {
	t.Helper()
	var inside, most atomic.Int64
	entered, leave := make(chan struct{}, 4), make(chan struct{})
	p := Open(t, start, httpmw.IdempotentOptions{}, func(_ context.Context, account string, _ int) error {
		if account != "42" {
			return nil
		}
		n := inside.Add(1)
		defer inside.Add(-1)
		most.Store(max(most.Load(), n))
		entered <- struct{}{}
		<-leave
		return nil
	})
	var all sync.WaitGroup
	for _, key := range []string{"a", "b", "c", "d"} {
		r := p.Request(pay, key, `{"amount":5}`)
		all.Go(func() {
			if a, err := Send(r); err != nil || a.Status != 201 {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
	<-entered
	if a := p.Post("/accounts/43/payments", "a", `{"amount":5}`); a.Status != 201 {
		t.Errorf("the other account got %+v", a)
	}
	for range 3 {
		leave <- struct{}{}
		<-entered
	}
	leave <- struct{}{}
	all.Wait()
	if most.Load() != 1 || p.Runs.Load() != 5 {
		t.Errorf("%d at once, %d runs", most.Load(), p.Runs.Load())
	}
}

// The client disconnects while its payment runs. The payment is completed, and the repeat gets its
// receipt.
func testDisconnect(t *testing.T, start Start) {
	t.Helper()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	p := Open(t, start, httpmw.IdempotentOptions{}, func(ctx context.Context, _ string, _ int) error {
		entered <- struct{}{}
		<-leave
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	r := p.Request("/accounts/42/payments", "k", `{"amount":5}`).WithContext(ctx)
	go func() { // ends with ctx
		_, err := Send(r)
		gone <- err
	}()
	<-entered
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	repeat := make(chan Answer, 1)
	again := p.Request("/accounts/42/payments", "k", `{"amount":5}`)
	go func() { // ends with the answer
		a, err := Send(again)
		if err != nil {
			t.Error(err)
		}
		repeat <- a
	}()
	close(leave)
	if a := <-repeat; a.Status != 201 || p.Runs.Load() != 1 {
		t.Errorf("the repeat got %+v after %d runs", a, p.Runs.Load())
	}
}

// The answers of httpmw itself reach the client, and their requests do not run.
func testRefusals(t *testing.T, start Start) {
	t.Helper()
	p := Open(t, start, httpmw.IdempotentOptions{}, func(context.Context, string, int) error { return nil })
	first := p.Post(pay, "k", `{"amount":5}`)
	p.WantReplay(first, p.Post(pay, "k", `{"amount":5}`), 201)
	for name, want := range map[string]int{"another body": 422, "no key": 400, "two keys": 400, "not signed in": 401} {
		r := p.Request(pay, "k", `{"amount":5}`)
		switch name {
		case "another body":
			r = p.Request(pay, "k", `{"amount":6}`)
		case "no key":
			r.Header.Del("Idempotency-Key")
		case "two keys":
			r.Header.Add("Idempotency-Key", "l")
		case "not signed in":
			r.Header.Del("Authorization")
		}
		a, err := Send(r)
		if err != nil || a.Status != want || a.Type != "application/problem+json" {
			t.Errorf("%s: got %+v, %v; want %d", name, a, err, want)
		}
	}
	if p.Runs.Load() != 1 {
		t.Errorf("%d runs", p.Runs.Load())
	}
	p.wantAudits()
}
