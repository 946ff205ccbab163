package schedule

import (
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
)

const channels = "wake:" // prefix of the channels of notifications

// op is a kind of command.
type op uint8

const (
	acquire op = iota
	renew
	release
	rotate
	leave
	complete
	revoke
	clearKey
	park
	unpark
	acquireShare
	renewShare
	releaseShare // with a locker: the withdrawal of a request for a share
	adopt
	interim
	ops
)

var opNames = [ops]string{
	"acquire", "renew", "release", "rotate", "leave", "complete", "revoke", "clear", "park", "unpark", "acquire_share", "renew_share", "release_share",
	"adopt", "interim",
}

func (o op) String() string { return opNames[o] }

// Modes of an acquire.
const (
	exclusive   = "exclusive"
	atLeastOnce = "least"
	atMostOnce  = "most"
)

// command has the fields of the requests of package backend that a process sends, with durations in
// µs.
type command struct {
	op        op
	id        string // of the request, of its grant, or of an operator's call
	next      string // rotate: of the next request
	from      string // adopt: of the grant before
	attempt   int64  // interim
	locker    string
	mode      string
	share     backend.Share
	lease     int64
	retention int64 // acquire, renew, rotate: how long an abandoned hold is kept
	keep      int64 // release, rotate, leave: how long the free key is kept; complete: the record; park: the entries
	token     int64 // the greatest token used; renew: the token of the hold to publish, or 0
	cooldown  int64
	record    string // interim: the answer
	queue     bool   // enter the queue
	abandon   bool
	repeated  bool // the script remembers the id
	plain     bool // acquire: the grant may be a plain hold; complete: it was a plain hold; release: the same, and the clock is past its tokens
	deal      bool // a plain acquire or release: deal.lua runs first, and if it does nothing, the script of the command
	late      bool // a late duplicate

	entry  string   // to park
	remove []string // entries to unpark
	marked int64    // remove only those with a mark that is not newer; 0: all
	woken  int      // how many entries with the prefix to wake
	prefix string

	sent     int64
	finished int // number of commands that had added an ended id when this one was sent
}

// reply is the reply to a command.
type reply struct {
	done      bool // released, completed, withdrawn, cleared
	outcome   backend.Outcome
	verdict   backend.Verdict
	token     int64
	attempt   int64
	abandoned bool
	phase     string // of a share
	remaining int64
	record    string // of a busy key: the interim answer
	again     bool   // the command was sent twice
	plain     bool
	parked    bool // the key may have parked entries
	park      backend.ParkReply
	unpark    backend.UnparkReply
}

// protocol converts commands into script calls and replies into values. All knowledge of the
// arguments and replies of the scripts is here.
type protocol struct {
	server  Server
	kind    backend.Kind
	keys    []string // hash, queue, parked entries, shares
	shared  []string // hash, queue, shares
	parked  []string // hash, parked entries, woken entries
	cluster bool
	args    []string
}

const (
	mostParked  = 3    // entries of a key
	wakeMessage = "px" // notifies a process that an entry is to be woken
)

func newProtocol(s Server, kind backend.Kind, cluster bool) protocol {
	names := redis.StoredNames("schedule", kind, "key")
	hash, entries, shares := names[0], names[0]+":p", names[0]+":s"
	return protocol{
		server: s, kind: kind, cluster: cluster,
		keys: []string{hash, names[1], entries, shares}, shared: []string{hash, names[1], shares}, parked: []string{hash, entries, hash + ":w"},
	}
}

func number(n int64) string  { return strconv.FormatInt(n, 10) }
func millis(us int64) string { return number(us / 1000) }

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

var (
	reservation = number(backend.ReserveTime.Microseconds())
	queueTTL    = number(backend.QueueTTL.Milliseconds())
	freeTTL     = number(backend.FreeTTL.Milliseconds())
	wokenTime   = number(backend.WokenTime.Microseconds())
)

func (p *protocol) send(now int64, c *command) (reply, error) {
	keys, a, countsAll := p.keys[:2], p.args[:0], bit(!p.cluster)
	switch c.op {
	case acquire:
		a = append(a, c.id, c.locker, number(c.lease), bit(c.queue), "holder", millis(c.retention), "", c.mode, queueTTL, bit(c.plain))
	case renew:
		keys = keys[:1]
		news := ""
		if c.token != 0 {
			news = number(c.token) + " next holder"
		}
		a = append(a, c.id, number(c.lease), millis(c.retention), news)
	case release:
		a = append(a, c.id, number(c.token), bit(c.abandon), millis(c.keep+c.cooldown), bit(c.repeated), reservation, channels, countsAll, number(c.cooldown), bit(c.plain))
	case rotate:
		a = append(a, c.id, number(c.token), millis(c.keep), bit(c.repeated), reservation, channels, countsAll,
			c.next, c.locker, number(c.lease), bit(c.queue), "holder", millis(c.retention), queueTTL)
	case leave:
		keys = p.shared
		a = append(a, c.id, c.locker, millis(c.keep), bit(c.repeated), reservation, channels, countsAll, wakeMessage)
	case complete:
		a = append(a, c.id, c.record, millis(c.keep), number(c.token), channels, bit(c.repeated), bit(c.plain))
	case revoke:
		keys = p.shared
		a = append(a, channels, c.id)
	case clearKey:
		keys = p.shared
		a = append(a, freeTTL, reservation, channels, countsAll, "", "", c.id)
	case park:
		keys = p.parked
		a = append(a, c.entry, number(mostParked), millis(c.keep), c.locker)
	case unpark:
		keys = p.parked
		a = append(append(a, number(int64(c.woken)), c.prefix, wokenTime, number(c.marked)), c.remove...)
	case acquireShare:
		keys = p.shared
		a = append(a, shareText(c), c.locker, number(c.lease), bit(c.queue), "holder", queueTTL, reservation, channels, countsAll)
	case renewShare:
		keys = p.shared
		a = append(a, shareText(c), number(c.lease), "")
	case releaseShare:
		keys = p.shared
		a = append(a, shareText(c), c.locker, millis(c.keep), bit(c.repeated), reservation, channels, countsAll, number(c.cooldown), "")
	case adopt:
		keys = keys[:1]
		a = append(a, c.from, c.id, c.locker, number(c.lease), "adopter", millis(c.retention))
	case interim:
		a = append(a, c.id, number(c.attempt), c.record, channels)
	default:
		panic("schedule: unknown command")
	}
	p.args = a
	v, err := p.server.Run(now, c.op.String(), keys, a)
	for err == nil { // while it was only a step, see sweep.lua and revoke.lua
		rest, _ := v.([]any)
		switch {
		case v == any(int64(-1)):
		case c.op == revoke && len(rest) == 3 && (rest[2] != any(int64(0)) || !c.late): // 0: a repeat
			a = append(a[:2], fmt.Sprint(rest[1]), fmt.Sprint(rest[2]))
		default:
			return decode(c.op, v)
		}
		v, err = p.server.Run(now, c.op.String(), keys, a)
	}
	return reply{}, err
}

func shareText(c *command) string {
	return c.id + "/" + number(int64(c.share.Limit)) + "/" + number(int64(c.share.Weight)) + "/"
}

// deal runs deal.lua for a plain acquire or release. ok is false if deal.lua does nothing.
func (p *protocol) deal(now int64, c *command) (r reply, ok bool, err error) {
	a := append(p.args[:0], "0")
	if c.op == acquire {
		a = append(a, c.id, number(c.lease)+" 0 "+c.locker+" holder", millis(c.retention))
	} else {
		a = append(a[:0], "1", c.id)
	}
	p.args = a
	v, err := p.server.Run(now, "deal", p.keys[:1], a)
	if err != nil {
		return r, false, err
	}
	list, _ := v.([]any)
	switch {
	case len(list) == 2 && list[1] == int64(1):
		return r, false, nil
	case len(list) != 1:
		return r, false, fmt.Errorf("unexpected reply %v", v)
	case c.op == acquire:
		r, err = decode(acquire, list[0])
		return r, true, err
	}
	return reply{done: true}, true, nil
}

func decode(o op, v any) (r reply, err error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	if text, ok := list[0].(string); ok && o == acquire {
		if r.record, _, ok = redis.PlainRecord(text); ok {
			r.outcome = backend.OutcomeDone
			return r, nil
		}
		r.outcome, r.plain, r.attempt = backend.OutcomeGranted, true, 1
		r.token, err = strconv.ParseInt(text, 10, 64)
		return r, err
	}
	first, ok := list[0].(int64)
	if !ok {
		return r, fmt.Errorf("unexpected reply %v", v)
	}
	switch o {
	case acquire:
		return acquired(list)
	case acquireShare:
		if r, err = acquired(list); r.outcome == backend.OutcomeGranted {
			r.phase, _ = list[5].(string)
		}
		return r, err
	case rotate:
		if r, err = acquired(list[1:]); err != nil {
			return r, err
		}
		r.done = first == 1
	case park:
		r.park = parkReply(list)
	case unpark:
		r.unpark = unparkReply(list)
	case adopt:
		r.token, r.attempt, r.abandoned, r.parked = integer(list, 1), integer(list, 2), integer(list, 3) == 1, integer(list, 4) == 1
		r.verdict = [...]backend.Verdict{backend.VerdictLost, backend.VerdictKept, backend.VerdictRevoked}[first]
	case renew, renewShare:
		r.verdict = [...]backend.Verdict{backend.VerdictLost, backend.VerdictKept, backend.VerdictRevoked}[first]
	default:
		r.done, r.parked = first == 1, integer(list, 1) == 1
	}
	return r, nil
}

// integer returns element i of a reply, or 0.
func integer(list []any, i int) int64 {
	if i >= len(list) {
		return 0
	}
	n, _ := list[i].(int64)
	return n
}

func parkReply(list []any) backend.ParkReply {
	at := func(i int) int64 { return integer(list, i) }
	switch at(0) {
	case 1:
		return backend.ParkReply{Outcome: backend.ParkFull, Count: int(at(1)), Oldest: micros(at(2))}
	case 2:
		return backend.ParkReply{Outcome: backend.Parked, Before: int(at(1)), Count: int(at(2)), Age: micros(at(3)), Oldest: micros(at(4))}
	}
	return backend.ParkReply{}
}

func unparkReply(list []any) backend.UnparkReply {
	u := backend.UnparkReply{Removed: int(integer(list, 0)), Count: int(integer(list, 2)), Marked: integer(list, 4)}
	for _, entry := range list[min(5, len(list)):] {
		name, _ := entry.(string)
		u.Wake = append(u.Wake, name)
	}
	return u
}

// acquired decodes a reply of acquire.lua.
func acquired(list []any) (r reply, err error) {
	outcomes := [...]backend.Outcome{
		backend.OutcomeBusy, backend.OutcomeGranted, backend.OutcomeDone, backend.OutcomeMismatch, backend.OutcomeAbandoned, backend.OutcomeEnded,
	}
	n, ok := list[0].(int64)
	if !ok || n < 0 || n >= int64(len(outcomes)) {
		return r, fmt.Errorf("unexpected reply %v", list)
	}
	r.outcome = outcomes[n]
	switch r.outcome {
	case backend.OutcomeBusy:
		if r.remaining, ok = list[1].(int64); len(list) > 7 {
			r.record, _ = list[7].(string)
		}
	case backend.OutcomeGranted:
		if r.token, ok = list[1].(int64); ok {
			r.attempt, _ = list[2].(int64)
			n, ok = list[3].(int64)
			r.abandoned, r.parked = n == 1, integer(list, 4) == 1
		}
	case backend.OutcomeDone:
		r.record, ok = list[1].(string)
		r.parked = integer(list, 4) == 1
	default:
	}
	if !ok {
		err = fmt.Errorf("unexpected reply %v", list)
	}
	return r, err
}

// inspect returns the state of the key.
func (p *protocol) inspect(now int64) (s backend.Status, err error) {
	v, err := p.server.Run(now, "inspect", p.keys, []string{"0"})
	if err != nil {
		return s, err
	}
	list, ok := v.([]any)
	if !ok || len(list) < 12 {
		return s, fmt.Errorf("unexpected reply %v", v)
	}
	at := func(i int) int64 { return integer(list, i) }
	live, abandoned := at(7) == 1, at(8) == 1
	s = backend.Status{State: backend.StateFree, Remaining: micros(at(3)), Token: at(4), Queue: int(at(6)), Revoked: at(9) == 1, Parked: int(at(13))}
	s.Locker, _ = list[11].(string)
	switch state, _ := list[0].(string); {
	case state == "d":
		s.State = backend.StateDone
	case state == "h" && live:
		s.State = backend.StateHeld
	case p.kind == backend.KindOnce && (state == "h" || abandoned):
		s.State = backend.StateAbandoned
	case state == "r" && live:
		s.State = backend.StateReserved
	case state == "c" && live:
		s.State = backend.StateCooling
	case state == "s" && live:
		s.State, s.Weights, s.Locker = backend.StateShared, int(at(16)), ""
	case state == "h" || abandoned:
		s.Died = true
	}
	return s, nil
}
