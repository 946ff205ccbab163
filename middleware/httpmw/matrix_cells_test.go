package httpmw_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// ask makes the request of a cell with the key in the given form.
func (m *matrix) ask(r rule, c cell, id, form, body string) *http.Request {
	if r.large {
		body = strings.Repeat(body, matrixLimit)
	}
	headers := []string{"Cell", id, "Answer", c.answer, "X-Tenant", or(r.tenant, "a")}
	values := r.keys[form]
	if r.keys == nil {
		key := strings.ReplaceAll(id, ",", "") // a bare key has no comma
		values = []string{map[string]string{"bare": key, "quoted": `"` + key + `"`}[form]}
	}
	for _, v := range values {
		headers = append(headers, "Idempotency-Key", v)
	}
	return m.request(or(r.method, "POST"), "/"+r.mount, body, headers...)
}

// play sends the requests of a cell. The last one is the subject of the cell. The first request has
// a valid key in its bare form, which is the same key as the quoted form.
func (m *matrix) play(t *testing.T, r rule, c cell, id string, gate *gate) (first, last answer) {
	t.Helper()
	start := func(form, body string) <-chan answer {
		req, answered := m.ask(r, c, id, form, body), make(chan answer, 1)
		go func() { // ends with the answer
			a, err := m.send(req)
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
			answered <- a
		}()
		return answered
	}
	other := map[bool]string{true: "other", false: "body"}[strings.HasPrefix(c.phase, "mismatch")]
	if c.phase == "first" {
		return answer{}, <-start(c.form, "body")
	}
	before := c.form
	if r.keys == nil {
		before = "bare"
	}
	one := start(before, "body")
	switch {
	case !c.running():
		first = <-one
		return first, <-start(c.form, other)
	case gate == nil:
		two := start(c.form, other)
		return <-one, <-two
	}
	<-gate.entered
	two := start(c.form, other)
	refused, _ := r.last(c)
	switch {
	case r.passes:
		<-gate.entered
	case refused == inProgress || refused == reused:
		last = <-two
		close(gate.leave)
		return <-one, last
	default:
		<-m.events.waiting
	}
	close(gate.leave)
	return <-one, <-two
}

// wantAnswer checks that a is the given refusal, or, without one, a response of the handler.
func wantAnswer(t *testing.T, id string, a answer, refused *refusal, replayed bool) {
	t.Helper()
	got := refusal{a.status, a.problem(), a.header.Get("Retry-After") != ""}
	want := refusal{status: http.StatusCreated}
	if refused != nil {
		want = *refused
	}
	if got != want || a.replayed() != replayed {
		t.Errorf("%s: got %+v, replayed %v; want %+v, replayed %v", id, got, a.replayed(), want, replayed)
	}
	personal := a.header.Get("Set-Cookie") != "" || a.header.Get("Www-Authenticate") != ""
	if personal != (refused == nil && !replayed) {
		t.Errorf("%s: headers %v, replayed %v", id, a.header, replayed)
	}
	if refused == nil && (!strings.HasPrefix(a.body, "one") && !strings.HasPrefix(a.body, "xxx") || a.header.Get("Location") == "") {
		t.Errorf("%s: got %.80q at %q", id, a.body, a.header.Get("Location"))
	}
}

// wantEqual checks that a replay equals the first response, except for the headers that belong to
// the first client.
func wantEqual(t *testing.T, id string, first, again answer) {
	t.Helper()
	for _, a := range []answer{first, again} {
		for _, name := range []string{"Date", "Set-Cookie", "Www-Authenticate", "Idempotent-Replayed"} {
			a.header.Del(name)
		}
	}
	if again.body != first.body || !maps.EqualFunc(again.header, first.header, slices.Equal) {
		t.Errorf("%s: replayed %q with %v, want %q with %v", id, again.body, again.header, first.body, first.header)
	}
}
