package httpsoak_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func ms(n int) int64 { return int64(n) * int64(time.Millisecond) }

// story returns a history without a mistake. At 1 s two runs begin in p1, which is killed 20 ms
// later; p2 takes the order over at 4.05 s, and the outcome of the payout is unknown.
func story() *history {
	a := &answer{header: http.Header{"X-Receipt": {"B"}}, body: []byte("B\n...")}
	begin := func(proc, key, run string, attempt int, tookOver bool, at int) []line {
		return []line{
			{Op: opGranted, Proc: proc, Key: key, Attempt: attempt, TookOver: tookOver, At: ms(at)},
			{Op: opBegin, Proc: proc, Key: key, Guard: "http:" + key, Run: run, Attempt: attempt, TookOver: tookOver, At: ms(at + 1)},
		}
	}
	h := &history{deaths: map[string]*death{"p1": {at: ms(1020), gone: ms(1022)}}}
	h.lines = append(h.lines, begin("p1", "order", "A", 1, false, 1000)...)
	h.lines = append(h.lines, begin("p1", "payout", "P", 1, false, 1000)...)
	h.lines = append(h.lines, begin("p2", "order", "B", 2, true, 4050)...)
	h.lines = append(h.lines, line{Op: opEnd, Proc: "p2", Key: "order", Run: "B", Sum: sum(http.StatusCreated, a.header, a.body), At: ms(4060)})
	done := func(sent, got int, replayed bool) try {
		return try{sent: ms(sent), got: ms(got), status: http.StatusCreated, replayed: replayed}
	}
	unknown := try{sent: ms(1005), got: ms(4010), status: http.StatusConflict, problem: httpmw.TypeOutcomeUnknown}
	h.keys = []*keyTries{
		{name: "order", mount: orders, since: ms(999), first: a, tries: []try{done(1010, 4062, true), done(1005, 4061, false), done(5000, 5001, true)}},
		{name: "payout", mount: payouts, since: ms(999), tries: []try{unknown, {sent: ms(5000), got: ms(5001), status: http.StatusConflict, problem: httpmw.TypeOutcomeUnknown}}},
	}
	return h
}

// The oracle finds no mistake in a correct history. It finds each mistake by the check that is
// meant for it.
func TestOracle(t *testing.T) {
	if v := story().judge(); len(v.wrong) > 0 || v.requests != 5 || v.midRun != 2 || v.takeovers != 1 || v.unknown != 1 {
		t.Errorf("%+v", v)
	}
	if v := unseen().judge(); len(v.wrong) > 0 || v.unseen != 1 {
		t.Errorf("%+v", v)
	}
	for _, m := range mistakes {
		h := story()
		m.make(h, h.keys[0], h.keys[1])
		if wrong := h.judge().wrong; !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, m.check+": ") && strings.Contains(w, m.says) }) {
			t.Errorf("%s: %s is not found, but %q", m.check, m.says, wrong)
		}
	}
}

// mistakes are made in a story. Its lines: 0 and 1 are of A, 2 and 3 of P, 4 to 6 of B.
var mistakes = []struct {
	check, says string
	make        func(h *history, order, payout *keyTries)
}{
	{"client", "differ", func(_ *history, o, _ *keyTries) {
		o.note(o.tries[0], &answer{http.Header{"X-Receipt": {"B"}}, []byte("B\n..!")})
	}},
	{"client", "differ", func(_ *history, o, _ *keyTries) {
		o.note(o.tries[0], &answer{http.Header{"X-Receipt": {"A"}}, []byte("B\n...")})
	}},
	{"origin", "not what B made", func(_ *history, o, _ *keyTries) { o.first.body = []byte("another") }},
	{"origin", "not in the journal", func(_ *history, o, _ *keyTries) { o.first.header.Set("X-Receipt", "Z") }},
	{"fresh", "2 answers", func(_ *history, o, _ *keyTries) { o.tries[0].replayed = false }},
	{"after", "C ran after it", func(h *history, _, _ *keyTries) { h.rerun(4061) }},
	{"after", "after a client had the answer", func(h *history, _, _ *keyTries) { h.rerun(6000) }},
	{"again", "after B had ended", func(h *history, _, _ *keyTries) { h.rerun(4061) }},
	{"overlap", "while B runs", func(h *history, _, _ *keyTries) { h.rerun(4055) }},
	{"early", "order: granted", func(h *history, _, _ *keyTries) { h.lines[4].At = ms(2400) }},
	{"early", "payout", func(_ *history, _, p *keyTries) { p.tries[0].got = ms(2400) }},
	{"attempt", "1 follows attempt 1", func(h *history, _, _ *keyTries) { h.lines[4].Attempt = 1 }},
	{"attempt", "3 follows attempt 1", func(h *history, _, _ *keyTries) { h.lines[4].Attempt = 3 }},
	{"takeover", "attempt 2", func(h *history, _, _ *keyTries) { h.lines[4].TookOver = false }},
	{"takeover", "attempt 1", func(h *history, _, _ *keyTries) { h.lines[0].TookOver = true }},
	{"told", "took over false", func(h *history, _, _ *keyTries) { h.lines[5].TookOver = false }},
	{"told", "and as http:other", func(h *history, _, _ *keyTries) { h.lines[5].Guard = "http:other" }},
	{"begin", "without a grant", func(h *history, _, _ *keyTries) { h.lines[4].Key = "other" }},
	{"begin", "has not begun", func(h *history, _, _ *keyTries) { h.lines[6].Run = "C" }},
	{"end", "neither ended", func(h *history, _, _ *keyTries) { h.lines = h.lines[:6] }},
	{"wait", "order", func(_ *history, o, _ *keyTries) { o.tries[0].got = ms(8200) }},
	{"wait", "payout", func(_ *history, _, p *keyTries) { p.tries[0].got = ms(5100) }},
	{"status", "order: 500", func(_ *history, o, _ *keyTries) { o.tries[0].status = http.StatusInternalServerError }},
	{"status", "order: 409", func(_ *history, o, p *keyTries) { o.tries[0] = p.tries[0] }},
	{"done", "order", func(_ *history, o, _ *keyTries) { o.first = nil }},
	{"most", "B begins", func(_ *history, o, _ *keyTries) { o.mount = payouts }},
	{"unknown", "not killed", func(h *history, _, _ *keyTries) { delete(h.deaths, "p1") }},
	{"unknown", "some have it", func(_ *history, o, p *keyTries) { p.tries[1] = o.tries[2] }},
	{"unknown", "no server was killed", func(h *history, _, p *keyTries) { p.name = "new"; h.deaths["p1"].gone = 0 }},
	{"fault", "p2", func(h *history, _, _ *keyTries) { h.lines = append(h.lines, line{Op: opFault, Proc: "p2", At: ms(1)}) }},
	{"fault", "p1", func(h *history, _, _ *keyTries) {
		h.lines = append(h.lines, line{Op: opFault, Proc: "p1", At: ms(1019)})
	}},
	{"fault", "gave up", func(h *history, _, _ *keyTries) { h.lines[6].Op = opGaveUp }},
	{"death", "p2", func(h *history, _, _ *keyTries) { h.lines = append(h.lines, line{Op: opDie, Proc: "p2", At: ms(1)}) }},
}

// unseen returns a story in which p3 has the order for a lease after p1, and dies before its
// Observer is notified.
func unseen() *history {
	h := story()
	h.deaths["p3"] = &death{at: ms(4051), gone: ms(4052)}
	h.lines[4].Attempt, h.lines[5].Attempt = 3, 3
	for i := range h.lines[4:] {
		h.lines[4+i].At += ms(3050)
	}
	for i := range h.keys[0].tries {
		h.keys[0].tries[i].got += ms(3050)
	}
	return h
}

// rerun makes the order run again, in p2.
func (h *history) rerun(at int) {
	h.lines = append(h.lines,
		line{Op: opGranted, Proc: "p2", Key: "order", Attempt: 3, TookOver: true, At: ms(at)},
		line{Op: opBegin, Proc: "p2", Key: "order", Guard: "http:order", Run: "C", Attempt: 3, TookOver: true, At: ms(at)},
		line{Op: opEnd, Proc: "p2", Key: "order", Run: "C", At: ms(at + 5)})
}
