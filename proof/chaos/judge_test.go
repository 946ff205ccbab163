package chaos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func ms(n int64) int64 { return n * int64(time.Millisecond) }

// story is a journal, as an oracle that is never late has read it.
type story struct{ *oracle }

func newStory() story { return story{newOracle(func(int64, int64) time.Duration { return 0 })} }

// held adds a hold to a story. Times are in ms.
func (s story) held(proc, key string, limit, weight int, token, called, seen, valid int64) {
	s.read(line{Op: opHold, Proc: proc, Key: key, ID: seen, Limit: limit, Weight: weight, Token: token, Called: ms(called), At: ms(seen)})
	s.read(line{Op: opEffect, Proc: proc, Key: key, ID: seen, Valid: ms(valid), At: ms(valid)})
}

// wrong returns the mistakes that the judge finds.
func (s story) wrong(must rules) []string {
	must.lease = 3 * time.Second
	return s.judge(must).wrong
}

// The judge finds no mistake in holds that are in order, and each mistake in those that are not.
func TestJudgeHolds(t *testing.T) {
	t.Parallel()
	failed := func(s story) { s.failed, s.healed = []int64{ms(1500)}, []int64{ms(1600)} }
	for name, c := range map[string]struct {
		tell  func(s story)
		check string // "": in order
		must  rules
	}{
		"shares, then two exclusive holds": {tell: func(s story) {
			s.held("a", "mixed", 3, 2, 5, 1000, 1000, 9000)
			s.held("b", "mixed", 3, 1, 5, 2000, 2000, 3000)
			s.held("c", "mixed", 5, 3, 5, 4000, 4000, 6000)
			s.held("a", "k", 0, 1, 7, 1000, 1000, 1100)
			s.held("b", "k", 0, 1, 8, 1050, 1200, 1300)
		}},
		"shares that were granted in another order": {tell: func(s story) {
			s.held("a", "mixed", 5, 2, 5, 1000, 1000, 9000)
			s.held("b", "mixed", 3, 3, 5, 0, 2000, 3000)
		}},
		"too heavy": {check: "weight", tell: func(s story) {
			s.held("a", "mixed", 3, 2, 5, 1000, 1000, 9000)
			s.held("b", "mixed", 3, 2, 5, 2000, 2000, 3000)
		}},
		"too heavy beside readers": {check: "weight", tell: func(s story) {
			s.held("a", "mixed", -1, 1, 5, 1000, 1000, 9000)
			s.held("b", "mixed", -1, 1, 5, 2000, 2000, 9000)
			s.held("c", "mixed", 3, 2, 5, 3000, 3000, 4000)
		}},
		"a writer beside a reader": {check: "overlap", tell: func(s story) {
			s.held("a", "mixed", -1, 1, 5, 1000, 1000, 9000)
			s.held("b", "mixed", 0, 1, 7, 2000, 2000, 3000)
		}},
		"a reader beside a writer": {check: "overlap", tell: func(s story) {
			s.held("a", "mixed", 0, 1, 5, 1000, 1000, 9000)
			s.held("b", "mixed", -1, 1, 7, 2000, 2000, 3000)
		}},
		"readers with two tokens": {check: "token", tell: func(s story) {
			s.held("a", "mixed", -1, 1, 5, 1000, 1000, 9000)
			s.held("b", "mixed", -1, 1, 6, 2000, 2000, 3000)
		}},
		"a writer with an old token": {check: "token", tell: func(s story) {
			s.held("a", "mixed", -1, 1, 5, 1000, 1000, 2000)
			s.held("b", "mixed", 0, 1, 5, 3000, 3000, 4000)
		}},
		"two exclusive holds":                           {check: "overlap", tell: overlap},
		"two exclusive holds after a fault of a server": {must: rules{overlaps: true}, tell: func(s story) { failed(s); overlap(s) }},
		"two exclusive holds long after the fault": {check: "overlap", must: rules{overlaps: true}, tell: func(s story) {
			s.failed, s.healed = []int64{ms(-9000)}, []int64{ms(-8000)}
			overlap(s)
		}},
		"a smaller token": {check: "token", tell: func(s story) {
			s.held("a", "k", 0, 1, 9, 1000, 1000, 1100)
			s.held("b", "k", 0, 1, 8, 1050, 1200, 1300)
		}},
		"a key that is free while a call waits": {check: "idle", tell: func(s story) {
			s.held("a", "k", 0, 1, 7, 1000, 1000, 1100)
			s.held("b", "k", 0, 1, 8, 1050, 4500, 4600)
		}},
		"a key that is free while the process that waits is stopped": {tell: func(s story) {
			s.resumed["b"] = []int64{ms(4400)}
			s.held("a", "k", 0, 1, 7, 1000, 1000, 1100)
			s.held("b", "k", 0, 1, 8, 1050, 4500, 4600)
		}},
		"a key that is free for the lease of a dead process": {tell: func(s story) {
			s.deaths["a"] = &death{at: ms(2000), gone: ms(2001)}
			s.read(line{Op: opHold, Proc: "a", Key: "k", ID: 1, Token: 7, Called: ms(1000), At: ms(1000)})
			s.held("b", "k", 0, 1, 8, 1050, 5200, 5300)
		}},
		"a key that is free for the lease of a process that died between grant and line": {tell: func(s story) {
			s.deaths["c"] = &death{at: ms(2000), gone: ms(2001)}
			s.held("a", "k", 0, 1, 7, 1000, 1000, 1100)
			s.read(line{Op: opPoint, Proc: "c", Key: "k", At: ms(2000), Text: "acquire answered"})
			s.held("b", "k", 0, 1, 8, 1050, 5200, 5300)
		}},
		"a write that is lost": {check: "register", tell: func(s story) {
			s.disturbed["a"], s.disturbed["b"] = true, true
			s.read(line{Op: opHold, Proc: "a", Key: "k", ID: 1, Token: 7, Called: ms(1000), At: ms(1000), Valid: ms(1000)})
			s.registers["k"].Write(7, s.holds[0], 5)
		}},
		"a write of a process that was not stopped is refused": {check: "register", tell: overlap},
		"a lost hold of a process that was not stopped": {check: "outcome", tell: func(s story) {
			s.read(line{Op: opReport, Proc: "a", Counts: map[string]int{"lost": 1}})
		}},
		"more leases lost than servers failed": {check: "lost", must: rules{fewLost: true, permits: []string{"lost"}}, tell: func(s story) {
			failed(s)
			s.read(line{Op: opReport, Proc: "a", Counts: map[string]int{"lost": 1}})
			s.read(line{Op: opReport, Proc: "b", Counts: map[string]int{"lost": 1}})
		}},
		"a lease lost after a server failed": {must: rules{fewLost: true, permits: []string{"lost"}}, tell: func(s story) {
			failed(s)
			s.read(line{Op: opReport, Proc: "a", Counts: map[string]int{"lost": 1}})
		}},
		"a call that is stuck": {check: "stuck", must: rules{longest: time.Second}, tell: func(s story) {
			s.read(line{Op: opSlow, Proc: "a", Called: ms(1000), At: ms(3000), Valid: ms(2000)})
		}},
		"a process without a hold for long": {check: "progress", must: rules{pause: 3 * time.Second}, tell: func(s story) {
			for i := range int64(5) {
				s.held("a", "k", 0, 1, 10+i, 1000*i, 1000*i, 1000*i+1)
			}
			s.held("b", "j", 0, 1, 10, 100, 500, 501)
			s.read(line{Op: opReport, Proc: "a"})
			s.read(line{Op: opReport, Proc: "b"})
		}},
		"a process without a hold": {check: "progress", must: rules{pause: 3 * time.Second}, tell: func(s story) {
			s.held("a", "k", 0, 1, 10, 1000, 1000, 1001)
			s.read(line{Op: opReport, Proc: "a"})
			s.read(line{Op: opReport, Proc: "b"})
		}},
		"processes with holds all the time": {must: rules{pause: 3 * time.Second}, tell: func(s story) {
			for i := range int64(5) {
				s.held("a", "k", 0, 1, 10+i, 2000*i, 2000*i, 2000*i+1)
				s.held("b", "j", 0, 1, 10+i, 2000*i, 2000*i+1, 2000*i+2)
			}
			s.read(line{Op: opReport, Proc: "a"})
			s.read(line{Op: opReport, Proc: "b"})
		}},
		"an unequal part": {check: "even", must: rules{even: true}, tell: func(s story) {
			for i := range int64(10) {
				s.held("a", "hot", 0, 1, 10+i, 100*i, 100*i, 100*i+1)
			}
			s.held("b", "hot", 0, 1, 99, 1000, 1000, 1001)
			s.read(line{Op: opReport, Proc: "a"})
			s.read(line{Op: opReport, Proc: "b"})
		}},
		"a fault": {check: "fault", tell: func(s story) { s.read(line{Op: opFault, Proc: "a", At: 1}) }},
	} {
		s := newStory()
		c.tell(s)
		wrong := s.wrong(c.must)
		if found := slices.ContainsFunc(wrong, func(w string) bool { return checkOf(w) == c.check }); found != (c.check != "") || c.check == "" && len(wrong) > 0 {
			t.Errorf("%s: want %q, got %q", name, c.check, wrong)
		}
	}
}

// The judge finds a lease that was lost while a majority of five servers could renew it.
func TestJudgeLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		struck []*struck
		check  string
	}{
		"three servers failed": {struck: []*struck{
			{server: 0, began: ms(1000), well: ms(9500)}, // before the grant, and did not vote then
			{server: 1, began: ms(11000), well: ms(12000)},
			{server: 2, began: ms(16000), well: ms(17000)}, // and then the lease could not be renewed
		}},
		"two servers failed": {check: "lost", struck: []*struck{
			{server: 1, began: ms(11000), well: ms(12000)},
			{server: 2, began: ms(13000), well: ms(14000)},
			{server: 2, began: ms(14500), well: ms(15000)},
		}},
		"one of three failed after the loss": {check: "lost", struck: []*struck{
			{server: 0, began: ms(11000), well: ms(12000)},
			{server: 1, began: ms(12000), well: ms(13000)},
			{server: 2, began: ms(19000), well: ms(20000)},
		}},
		"one of three was well long before the grant": {check: "lost", struck: []*struck{
			{server: 0, began: ms(1000), well: ms(8000)},
			{server: 1, began: ms(11000), well: ms(12000)},
			{server: 2, began: ms(13000), well: ms(14000)},
		}},
	} {
		s := newStory()
		s.read(line{Op: opHold, Proc: "a", Key: "k", ID: 1, Token: 7, Called: ms(1000), At: ms(10000)})
		s.read(line{Op: opValid, Proc: "a", ID: 1, Valid: ms(15000)})
		s.read(line{Op: opEffect, Proc: "a", Key: "k", ID: 1, At: ms(15500)})
		r, v := &run{oracle: s.oracle, servers: servers{masters: make([]*redistest.Server, 5), struck: c.struck}}, &verdict{}
		if r.judgeLost(v); len(v.wrong) > 0 != (c.check != "") {
			t.Errorf("%s: want %q, got %q", name, c.check, v.wrong)
		}
	}
}

// overlap is a hold of b that writes while a holds the key.
func overlap(s story) {
	s.read(line{Op: opHold, Proc: "a", Key: "k", ID: 1, Token: 7, Called: ms(1000), At: ms(1000)})
	s.held("b", "k", 0, 1, 8, 2000, 2000, 2100)
	s.read(line{Op: opEffect, Proc: "a", Key: "k", ID: 1, Valid: ms(3000), At: ms(3000)})
}

// payments is a story of once keys without a mistake. At 1 s two runs begin in p1, which is killed
// 20 ms later. p2 takes the order over at 4.05 s, and the outcome of the payout is unknown. Lines 0
// and 1 are of run A, 2 and 3 of P, 4 to 6 of B.
func payments() story {
	s := newStory()
	s.deaths["p1"] = &death{at: ms(1020), gone: ms(1022)}
	begin := func(proc, key, run string, attempt int, tookOver bool, at int64) {
		s.read(line{Op: opGranted, Proc: proc, Key: key, Attempt: attempt, TookOver: tookOver, At: ms(at)})
		s.read(line{Op: opBegun, Proc: proc, Key: key, Text: "http:" + key, Run: run, Attempt: attempt, TookOver: tookOver, At: ms(at + 1)})
	}
	begin("p1", "order", "A", 1, false, 1000)
	begin("p1", "payout", "P", 1, false, 1000)
	begin("p2", "order", "B", 2, true, 4050)
	s.read(line{Op: opEnded, Proc: "p2", Key: "order", Run: "B", Sum: "b", At: ms(4060)})
	got := func(key, kind, run string, sent, got int64, replayed bool) {
		s.answers[key] = append(s.answers[key], answer{kind: kind, sent: ms(sent), got: ms(got), run: run, sum: strings.ToLower(run), replayed: replayed})
	}
	got("order", done, "B", 1010, 4062, true)
	got("order", done, "B", 1005, 4061, false)
	got("order", done, "B", 5000, 5001, true)
	got("payout", unknown, "", 1005, 4010, false)
	got("payout", unknown, "", 5000, 5001, false)
	s.asked["order"], s.asked["payout"] = ms(999), ms(999)
	return s
}

// unseen is a story in which p3 has the order for a lease after p1, and dies before its Observer is
// notified.
func unseen() story {
	s := payments()
	s.deaths["p3"] = &death{at: ms(4051), gone: ms(4052)}
	for i := range s.runs[4:] {
		l := &s.runs[4+i]
		l.At += ms(3050)
		if l.Attempt == 2 {
			l.Attempt = 3
		}
	}
	for i := range s.answers["order"] {
		s.answers["order"][i].got += ms(3050)
	}
	return s
}

// again makes the order run once more, in p2.
func (s story) again(at int64) {
	s.read(line{Op: opGranted, Proc: "p2", Key: "order", Attempt: 3, TookOver: true, At: ms(at)})
	s.read(line{Op: opBegun, Proc: "p2", Key: "order", Text: "http:order", Run: "C", Attempt: 3, TookOver: true, At: ms(at)})
	s.read(line{Op: opEnded, Proc: "p2", Key: "order", Run: "C", At: ms(at + 5)})
}

// The judge finds no mistake in once keys that are in order, and each mistake by the check that is
// meant for it.
func TestJudgeOnce(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]story{"payments": payments(), "unseen": unseen()} {
		if wrong := s.wrong(rules{}); len(wrong) > 0 {
			t.Errorf("%s: %q", name, wrong)
		}
	}
	order := func(s story, i int) *answer { return &s.answers["order"][i] }
	payout := func(s story, i int) *answer { return &s.answers["payout"][i] }
	for _, m := range []struct {
		check, says string
		make        func(s story)
	}{
		{"client", "differ", func(s story) { order(s, 0).sum = "another" }},
		{"origin", "not what B made", func(s story) { order(s, 0).sum = "another" }},
		{"origin", "not in the journal", func(s story) { order(s, 0).run = "Z" }},
		{"fresh", "2 answers", func(s story) { order(s, 0).replayed = false }},
		{"after", "C ran after it", func(s story) { s.again(4061) }},
		{"after", "C ran after it", func(s story) { s.again(6000) }},
		{"again", "after B had ended", func(s story) { s.again(4061) }},
		{"overlap", "while B runs", func(s story) { s.again(4055) }},
		{"early", "order: granted", func(s story) { s.runs[4].At = ms(2400) }},
		{"early", "payout", func(s story) { payout(s, 0).got = ms(2400) }},
		{"attempt", "1 follows attempt 1", func(s story) { s.runs[4].Attempt = 1 }},
		{"attempt", "3 follows attempt 1", func(s story) { s.runs[4].Attempt = 3 }},
		{"takeover", "attempt 2", func(s story) { s.runs[4].TookOver = false }},
		{"takeover", "attempt 1", func(s story) { s.runs[0].TookOver = true }},
		{"told", "took over false", func(s story) { s.runs[5].TookOver = false }},
		{"told", "and as http:other", func(s story) { s.runs[5].Text = "http:other" }},
		{"begin", "without a grant", func(s story) { s.runs[4].Key = "other" }},
		{"begin", "has not begun", func(s story) { s.runs[6].Run = "C" }},
		{"end", "neither ended", func(s story) { s.runs = s.runs[:6] }},
		{"wait", "order", func(s story) { order(s, 0).got = ms(8200) }},
		{"wait", "payout", func(s story) { payout(s, 0).got = ms(5100) }},
		{"answer", "order: 500", func(s story) { order(s, 0).kind = "500 " }},
		{"answer", "unknown", func(s story) { order(s, 0).kind = unknown }},
		{"most", "B begins", func(s story) { rename(s, "order", "payout2") }},
		{"unknown", "not killed", func(s story) { delete(s.deaths, "p1") }},
		{"unknown", "some have it", func(s story) { *payout(s, 1) = *order(s, 2) }},
		{"unknown", "no process was killed", func(s story) {
			rename(s, "payout", "payout2")
			s.runs[2].Key, s.runs[3].Key = "order", "order"
			s.deaths["p1"].gone = 0
		}},
		{"fault", "p2", func(s story) { s.read(line{Op: opFault, Proc: "p2", At: ms(1)}) }},
		{"fault", "p1", func(s story) { s.read(line{Op: opFault, Proc: "p1", At: ms(1019)}) }},
		{"fault", "gave up", func(s story) { s.runs[6].Op = opGaveUp }},
		{"again", "more than takeovers", func(s story) { s.runs[4].TookOver = false; s.failed = []int64{ms(500)} }},
	} {
		s := payments()
		m.make(s)
		if wrong := s.wrong(rules{}); !slices.ContainsFunc(wrong, func(w string) bool { return checkOf(w) == m.check && strings.Contains(w, m.says) }) {
			t.Errorf("%s: %s is not found, but %q", m.check, m.says, wrong)
		}
	}
}

// rename gives a once key another name.
func rename(s story, from, to string) {
	for i := range s.runs {
		if s.runs[i].Key == from {
			s.runs[i].Key = to
		}
	}
	s.answers[to], s.asked[to] = s.answers[from], s.asked[from]
	delete(s.answers, from)
}
