package locktest

import (
	"slices"
	"strings"
)

// Request is a command on its way to Redis.
type Request struct {
	Name string   // in upper case: "EVALSHA"
	Args []string // what follows
	// Script is what a script calls itself in the last line that looks like `-- acquire.lua: …`, once its source has
	// passed by on a connection of the same Faults; else "".
	Script string
}

// About reports whether one of the arguments contains text, a key's name for instance. The text of a script does not
// count.
func (r Request) About(text string) bool {
	args := r.Args
	if r.Name == "EVAL" && len(args) > 0 {
		args = args[1:]
	}
	return slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, text) })
}

// Match picks the requests that a fault may strike. It is never called from two goroutines at once and must not call
// its Faults. A nil Match picks everything but what sets a connection up (HELLO, AUTH, SELECT, CLIENT, READONLY, PING).
type Match func(Request) bool

// Script picks the runs of the script that calls itself name, see [Request].
func Script(name string) Match { return func(r Request) bool { return r.Script == name } }

// Nth picks the n-th, from 1, of the requests that m picks.
func Nth(n int, m Match) Match {
	seen := 0
	return func(r Request) bool {
		if m.picks(r) {
			seen++
			return seen == n
		}
		return false
	}
}

func (m Match) picks(r Request) bool {
	if m == nil {
		return !handshake(r)
	}
	return m(r)
}

type kind int

const (
	loseRequest kind = iota
	cutRequest
	loseReply
	cutReply
	hold
)

// Fault is one planted fault. It strikes one request, once.
type Fault struct {
	f       *Faults
	kind    kind
	match   Match
	struck  chan struct{}
	replied chan struct{}
	deliver bool // under f.mu: the held request may go on
}

// LoseRequest loses the next request that m picks, and what is sent after it on its connection: Redis never sees them,
// and the client hears nothing more there.
func (f *Faults) LoseRequest(m Match) *Fault { return f.plant(loseRequest, m) }

// CutRequest cuts the connection of the next request that m picks before Redis sees it.
func (f *Faults) CutRequest(m Match) *Fault { return f.plant(cutRequest, m) }

// LoseReply lets Redis act on the next request that m picks, but the client gets neither the reply nor anything later on
// that connection.
func (f *Faults) LoseReply(m Match) *Fault { return f.plant(loseReply, m) }

// CutReply lets Redis act on the next request that m picks and cuts the connection instead of replying.
func (f *Faults) CutReply(m Match) *Fault { return f.plant(cutReply, m) }

// Hold keeps the next request that m picks in the network, and what follows it on its connection, until Deliver: also when the
// client has long given up, closed the connection and sent the same again on another one.
func (f *Faults) Hold(m Match) *Fault { return f.plant(hold, m) }

// Struck is closed when the fault has hit a request: it is lost, held, its connection is cut, or it is on its way to
// Redis and its reply will be missing.
func (x *Fault) Struck() <-chan struct{} { return x.struck }

// Replied is closed when Redis has acted on the request that was hit. It is never closed for a lost request.
func (x *Fault) Replied() <-chan struct{} { return x.replied }

// Deliver lets a held request go on to Redis; one that is not held yet will not be.
func (x *Fault) Deliver() { x.f.set(func() { x.deliver = true }) }

// Remove takes back a fault that has not struck. A request that is held goes on.
func (x *Fault) Remove() {
	x.f.set(func() {
		x.f.planted = slices.DeleteFunc(x.f.planted, func(y *Fault) bool { return x == y })
		x.deliver = true
	})
}

func (f *Faults) plant(k kind, m Match) *Fault {
	x := &Fault{f: f, kind: k, match: m, struck: make(chan struct{}), replied: make(chan struct{})}
	f.set(func() { f.planted = append(f.planted, x) })
	return x
}

// strikeLocked returns the fault that hits r, or nil. Every match sees every request, so that Nth counts right.
func (f *Faults) strikeLocked(r Request) *Fault {
	hit := -1
	for i, x := range f.planted {
		if x.match.picks(r) && hit < 0 {
			hit = i
		}
	}
	if hit < 0 {
		return nil
	}
	x := f.planted[hit]
	f.planted = slices.Delete(f.planted, hit, hit+1)
	close(x.struck)
	return x
}
