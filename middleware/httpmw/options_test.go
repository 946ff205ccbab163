package httpmw_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Shows: H6
func TestOptionsAreCheckedTogether(t *testing.T) {
	o := httpmw.IdempotentOptions{
		Terms: lockcore.Terms{Lease: 1}, Keep: 1, Mode: 7, Methods: []string{"PO ST"}, Store: 9,
		Header: "connection", OmitHeaders: []string{"content-type", "Bad Name"}, OnlyHeaders: []string{"set-cookie", "Worse Name"}, MaxRequest: -1, MaxResponse: 1 << 30,
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Terms.Lease", "Keep", "Mode", `"PO ST"`, "Store is 9", `Header is "connection"`, `OmitHeaders has "content-type"`, `OmitHeaders has "Bad Name"`, `OnlyHeaders has "set-cookie"`, `OnlyHeaders has "Worse Name"`, "OmitHeaders has 2 names and OnlyHeaders 2", "MaxRequest is -1", "MaxResponse is 1073741824"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	for _, header := range []string{"host", "Set-Cookie", "Transfer-Encoding", "X Key", "X-Key:"} {
		if err := (httpmw.IdempotentOptions{Header: header}).Validate(); err == nil || !strings.Contains(err.Error(), header) {
			t.Errorf("Header %q: %v", header, err)
		}
	}
	if err := (httpmw.IdempotentOptions{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

// Validate returns all problems in one line, also those that other packages have found. The line
// begins with the name of the options.
func TestEachProblemOfOptionsSaysWhere(t *testing.T) {
	terms := lockcore.Terms{Lease: 1, MaxHold: -1}
	for _, c := range []struct {
		want string
		n    int // problems
		err  error
	}{
		{"httpmw: IdempotentOptions: Terms.Lease is 1ns", 5, httpmw.IdempotentOptions{Terms: terms, Keep: 1, Mode: 7, Store: 9}.Validate()},
		{"httpmw: ShareOptions: Terms.Lease is 1ns", 2, httpmw.ShareOptions{Terms: terms}.Validate()},
		{"httpmw: ExclusiveOptions: Terms.Lease is 1ns", 3, httpmw.ExclusiveOptions{Terms: terms, Status: 1}.Validate()},
	} {
		if text := fmt.Sprint(c.err); !strings.HasPrefix(text, c.want) || strings.Count(text, "; ") != c.n-1 {
			t.Errorf("%q must begin with %q and have %d problems", text, c.want, c.n)
		}
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	locks := guarded(t, httpmw.IdempotentOptions{}, nil).locks
	for name, call := range map[string]func(){
		"locks":   func() { httpmw.Idempotent(nil, tenant, httpmw.IdempotentOptions{}) },
		"scope":   func() { httpmw.Idempotent(locks, nil, httpmw.IdempotentOptions{}) },
		"options": func() { httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{Keep: -1}) },
		"handler": func() { httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(nil) },
		"locks must not be nil; scope must not be nil; IdempotentOptions: ": func() { httpmw.Idempotent(nil, nil, httpmw.IdempotentOptions{Keep: -1}) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "httpmw: Idempotent: ") || !strings.Contains(strings.ToLower(text), strings.ToLower(name)) {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			call()
		}()
	}
}

// A scope function returns an error. Its text does not reach the client, and an error such as
// ErrBusy in it has no special meaning.
func TestScopeErrorIsNotSent(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		return httpmw.Idempotent(l, func(*http.Request) (string, error) {
			return "", errors.Join(lockcore.ErrBusy, errors.New("secret"))
		}, httpmw.IdempotentOptions{})(http.NotFoundHandler())
	})
	a := f.post("k")
	f.wantProblem(a, 401, "unauthorized")
	if strings.Contains(a.body, "secret") {
		t.Errorf("the body is %q", a.body)
	}
}
