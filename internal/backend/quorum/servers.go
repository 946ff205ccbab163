package quorum

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Servers decides which masters may vote. A restarted server may have lost grants: its memory, or the
// last second of its append-only file. So its grants do not count until every lease that it may have
// lost has ended: the longest lease after its start. If it has lost nothing, they count at once.
//
// Connected runs before the first command of a connection, and a restart ends all connections. So
// mayVote, called after a reply, knows of the start of the server that replied.
//
// A renewal does not count either. Otherwise a restarted server that granted a late copy of a request
// would keep its lease, although an earlier vote of that server may still count for another request. A
// release needs no delay: it frees what the caller held.
type Servers struct {
	names   []string
	longest time.Duration

	report func(name string, err error)

	mu      sync.Mutex
	states  []state   // by master
	changed time.Time // when a master began to fail, or replied again
}

// state is what is known of a server.
type state struct {
	runID   string    // of its latest start
	votes   time.Time // grants count that were requested after it
	replied time.Time // when the latest request was sent that got a reply
	failed  error     // of its last request
}

// NewServers returns the Servers of masters with these names, of which no lease is longer than
// longest. report is called when a server begins to fail, and with a nil error when it replies again.
func NewServers(names []string, longest time.Duration, report func(name string, err error)) *Servers {
	return &Servers{names: names, longest: longest, report: report, states: make([]state, len(names))}
}

// Connected records a new connection to master i. After an error the connection must not be used.
func (s *Servers) Connected(i int, info backend.ServerInfo) error {
	if info.Refused != "" {
		return unsupported(fmt.Sprintf("server %s %s", s.names[i], info.Refused), "independent primaries")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.states {
		if k != i && s.states[k].runID == info.RunID {
			return unsupported(fmt.Sprintf("%s and %s are the same server", s.names[k], s.names[i]), "independent primaries")
		}
	}
	at := &s.states[i]
	if at.runID == info.RunID {
		return nil
	}
	if at.runID != "" && info.Age*99/100 > time.Since(at.replied) { // not restarted: another server, or what an earlier run said
		info.Age, info.Durable = 0, false
	}
	at.runID = info.RunID
	votes := time.Now().Add(s.longest + s.longest/100 - info.Age) // 1 %: the rates of two clocks differ
	if !info.Durable && votes.After(at.votes) {                   // never sooner than after an earlier loss
		at.votes = votes
	}
	return nil
}

// mayVote returns an error if a grant or renewal of master i does not count that was requested at sent.
func (s *Servers) mayVote(i int, sent time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait := s.states[i].votes.Sub(sent); wait > 0 { //planted:quorum-restarted
		return fmt.Errorf("it has restarted and may have lost leases, so it votes in %v", wait.Round(time.Millisecond))
	}
	return nil
}

// failed returns the error of each master whose last request failed.
func (s *Servers) failed() []error {
	errs := make([]error, len(s.states))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.states {
		errs[i] = s.states[i].failed
	}
	return errs
}

// failing is failed, but it returns none if no majority would be left.
func (s *Servers) failing() []error {
	errs, n := s.failed(), 0
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	if n > (len(errs)-1)/2 {
		clear(errs)
	}
	return errs
}

// changedSince reports whether a master has begun to fail, or has replied again, since t.
func (s *Servers) changedSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed.After(t)
}

// heard records the result of a request to master i that was sent at sent. A failure that is older than
// a reply changes nothing.
func (s *Servers) heard(i int, sent time.Time, err error) {
	s.mu.Lock()
	at := &s.states[i]
	if err == nil && sent.After(at.replied) {
		at.replied = sent
	}
	late := err != nil && !sent.After(at.replied) //planted:quorum-late-failure
	changed := !late && (at.failed == nil) != (err == nil)
	if changed {
		at.failed, s.changed = err, time.Now()
	}
	s.mu.Unlock()
	if changed && s.report != nil {
		s.report(s.names[i], err)
	}
}
