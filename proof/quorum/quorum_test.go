package quorum_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/quorum"
)

// search searches, and fails unless that property is broken.
func search(t *testing.T, name string, m quorum.Model, broken string) quorum.Result {
	t.Helper()
	r := m.Search()
	trace := strings.Join(r.Trace, "\n")
	if r.Broken != broken {
		t.Errorf("%s: %d states break %q, want %q\n%s", name, r.States, r.Broken, broken, trace)
	} else if broken != "" {
		t.Logf("%s breaks %q in %d steps (%d states)\n%s", name, broken, len(r.Trace), r.States, trace)
	}
	return r
}

// with returns a model with changed bounds.
func with(m quorum.Model, change func(*quorum.Model)) quorum.Model {
	change(&m)
	return m
}

var (
	holds  = quorum.Model{Ticks: 5, Lease: 2, Block: 1, Sends: [2]int{1, 1}, Renewals: 1, Restart: true}
	tokens = quorum.Model{Ticks: 4, Lease: 1, Memory: 4, Rate: 2, Block: 2, Ahead: [3]int{0, 0, 3}, Sends: [2]int{1, 1}}
)

// No reachable state breaks a property.
func TestModel(t *testing.T) {
	rows := []struct {
		name   string
		model  quorum.Model
		states int // at least
	}{
		{"old data", with(holds, func(m *quorum.Model) { m.OldData = true }), 200_000},
		{"two requests", with(holds, func(m *quorum.Model) { m.Ticks, m.Sends, m.Renewals = 3, [2]int{2, 1}, 0 }), 300_000},
		{"clock ahead", with(tokens, func(m *quorum.Model) { m.Lead = 1 }), 200_000},
		{"clock ahead, restart", with(tokens, func(m *quorum.Model) { m.Ticks, m.Restart, m.Rate, m.Lead, m.Ahead[2] = 3, true, 10, 1, 1 }), 300_000},
	}
	if testlevel.Pick(t, false, false, true) {
		rows = append(rows, rows[:3]...)
		rows[4].model.Lease, rows[4].model.Ticks, rows[4].model.Renewals = 3, 8, 2
		rows[5].model.Ticks, rows[5].model.Renewals = 4, 1
		rows[6].model.Lease, rows[6].model.Block, rows[6].model.Lead, rows[6].model.Restart = 2, 1, 0, true
	}
	for _, row := range rows {
		r := search(t, row.name, row.model, "")
		t.Logf("%s: %d states; %d of %d grants needed a second round", row.name, r.States, r.Raised, r.Grants[0]+r.Grants[1])
		if r.States < row.states || r.Grants[0] == 0 || r.Grants[1] == 0 || (r.Raised > 0) != (row.model.Rate > 0) {
			t.Errorf("%s: %+v, want %d states, and grants of both processes", row.name, r, row.states)
		}
	}
}

// With one server down both processes get the key, also after a second round.
func TestServerDown(t *testing.T) {
	r := search(t, "down", with(tokens, func(m *quorum.Model) { m.Down, m.Ahead = true, [3]int{0, 3, 0} }), "")
	if r.Grants[0] == 0 || r.Grants[1] == 0 || r.Raised == 0 {
		t.Errorf("%+v", r)
	}
}

// The search finds each mistake.
func TestMistakes(t *testing.T) {
	two := func(m *quorum.Model) { m.Sends[0], m.Renewals = 2, 0 }
	long := func(m *quorum.Model) { m.Lease, m.Block, m.Renewals = 2, 1, 1 }
	for _, row := range []struct {
		mistake quorum.Mistake
		model   quorum.Model
		broken  string
	}{
		{quorum.FromReply, holds, quorum.Alone},
		{quorum.MinorityGrant, holds, quorum.Alone},
		{quorum.NoWithdrawal, holds, quorum.Ends},
		{quorum.SilentKept, holds, quorum.Ends},
		{quorum.SameID, with(holds, two), quorum.Alone},
		{quorum.NoRaise, tokens, quorum.Tokens},
		{quorum.RaiseUncounted, tokens, quorum.Tokens},
		{quorum.Resurrection, holds, quorum.Ends},
		{quorum.LateRenewal, with(tokens, long), quorum.Tokens},
		{quorum.MinorityRenewal, holds, quorum.Alone},
		{quorum.MuteRenewal, holds, quorum.Alone},
		{quorum.OldToken, with(tokens, func(m *quorum.Model) { m.Lease, m.Block, m.Ticks, m.Restart = 2, 1, 3, true }), quorum.Tokens},
		{quorum.EmptyVotes, holds, quorum.Alone},
		{quorum.OldVotes, with(holds, func(m *quorum.Model) { two(m); m.Ticks, m.OldData = 2, true }), quorum.Alone},
		{quorum.Forgetful, holds, quorum.Ends},
	} {
		row.model.Mistake = row.mistake
		search(t, string(row.mistake), row.model, row.broken)
	}
}

// Clocks that differ by more than the documentation of the package says break the growth of tokens.
func TestLimits(t *testing.T) {
	restart := func(m *quorum.Model) { m.Restart, m.Ahead[2] = true, 0 }
	for name, change := range map[string]func(*quorum.Model){
		"a server ahead by more than the memory":   func(m *quorum.Model) { m.Memory, m.Ahead[2] = 1, 9 },
		"a proposal ahead by more than the memory": func(m *quorum.Model) { m.Memory, m.Lead = 1, 9 },
		"a server ahead by more than the lease":    func(m *quorum.Model) { m.Restart = true },
		"a proposal ahead by more than the lease":  func(m *quorum.Model) { restart(m); m.Lead = 3 },
	} {
		search(t, name, with(tokens, change), quorum.Tokens)
	}
}
