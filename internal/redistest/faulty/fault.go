package faulty

import (
	"slices"
	"strings"
)

// Request is a command on its way to Redis.
type Request struct {
	Name string   // in upper case: "EVALSHA"
	Args []string // what follows the name
	// Script is the name of the script: the one in the last line of its source that has the form
	// `-- acquire.lua: …`. It is "" until the source has passed through a connection of the same
	// Network.
	Script string
}

// About reports whether one of the arguments contains text, such as the name of a key. The source
// of a script does not count.
func (r Request) About(text string) bool {
	args := r.Args
	if r.Name == "EVAL" && len(args) > 0 {
		args = args[1:]
	}
	return slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, text) })
}

// Match selects the requests that a fault may hit. It is never called from two goroutines at once
// and must not call its Network. A nil Match selects every request but the ones that set up a
// connection (HELLO, AUTH, SELECT, CLIENT, READONLY, PING, INFO, CONFIG).
type Match func(Request) bool

// Script selects the runs of the script with that name, see [Request].
func Script(name string) Match { return func(r Request) bool { return r.Script == name } }

// Nth selects the n-th request, counted from 1, of those that m selects.
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

// Fault is one planted fault. It hits one request, once.
type Fault struct {
	f       *Network
	kind    kind
	match   Match
	struck  chan struct{}
	replied chan struct{}
	deliver bool // under f.mu: the held request may continue
}

// LoseRequest loses the next request that m selects, and all later data of its connection. Redis
// receives neither, and the client receives nothing more on that connection.
func (f *Network) LoseRequest(m Match) *Fault { return f.plant(loseRequest, m) }

// CutRequest cuts the connection of the next request that m selects. Redis does not receive the
// request.
func (f *Network) CutRequest(m Match) *Fault { return f.plant(cutRequest, m) }

// LoseReply lets Redis execute the next request that m selects. The client receives neither the
// reply nor anything later on that connection.
func (f *Network) LoseReply(m Match) *Fault { return f.plant(loseReply, m) }

// CutReply lets Redis execute the next request that m selects, and cuts the connection instead of
// the reply.
func (f *Network) CutReply(m Match) *Fault { return f.plant(cutReply, m) }

// Hold keeps the next request that m selects in the network until Deliver, and the later data of
// its connection behind it. The request stays held if the client gives up, closes the connection
// and repeats the request on another one.
func (f *Network) Hold(m Match) *Fault { return f.plant(hold, m) }

// Struck is closed when the fault has hit a request. Then the request is lost or held, or its
// connection is cut. After LoseReply or CutReply the request is on its way to Redis, and its reply
// will not arrive.
func (x *Fault) Struck() <-chan struct{} { return x.struck }

// Replied is closed when Redis has executed the request that was hit. It is never closed for a lost
// request.
func (x *Fault) Replied() <-chan struct{} { return x.replied }

// Deliver sends a held request on to Redis. If no request is held yet, none will be.
func (x *Fault) Deliver() { x.f.set(func() { x.deliver = true }) }

// Remove removes a fault that has not hit a request. A request that is held continues to Redis.
func (x *Fault) Remove() {
	x.f.set(func() {
		x.f.planted = slices.DeleteFunc(x.f.planted, func(y *Fault) bool { return x == y })
		x.deliver = true
	})
}

func (f *Network) plant(k kind, m Match) *Fault {
	x := &Fault{f: f, kind: k, match: m, struck: make(chan struct{}), replied: make(chan struct{})}
	f.set(func() { f.planted = append(f.planted, x) })
	return x
}

// strikeLocked returns the fault that hits r, or nil. Every Match sees every request, so that Nth
// counts all of them.
func (f *Network) strikeLocked(r Request) *Fault {
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
