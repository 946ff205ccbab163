package schedule

import (
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
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

// protocol sends commands as requests of package backend, and converts the replies.
type protocol struct {
	server  Server
	key     backend.Key
	cluster bool
}

const mostParked = 3 // entries of a key

func newProtocol(s Server, kind backend.Kind, cluster bool) protocol {
	return protocol{
		server: s, cluster: cluster,
		key: backend.Key{Kind: kind, Name: "key", Stored: wire.StoredNames("schedule", kind, "key")},
	}
}

// acquireRequest returns the request of an acquire.
func (c *command) acquireRequest(k *backend.Key) *backend.AcquireRequest {
	return &backend.AcquireRequest{
		Key: k, ID: c.id, Holder: "holder", Lease: micros(c.lease), Retention: micros(c.retention), AtMostOnce: c.mode == atMostOnce, Queue: c.queue,
		Share: c.share,
	}
}

// renewRequest returns the request of a renewal.
func (c *command) renewRequest(k *backend.Key) backend.RenewRequest {
	r := backend.RenewRequest{Key: k, ID: c.id, Lease: micros(c.lease), Retention: micros(c.retention), Token: c.token, Share: c.share}
	if c.token != 0 {
		r.Holder = "next holder"
	}
	return r
}

// releaseRequest returns the request of a release or a rotation.
func (c *command) releaseRequest(k *backend.Key) *backend.ReleaseRequest {
	r := &backend.ReleaseRequest{
		Key: k, ID: c.id, Token: c.token, Retention: micros(c.keep), Abandon: c.abandon, Repeated: c.repeated, Share: c.share, Plain: c.plain,
	}
	if c.op == rotate {
		next := *c
		next.id = c.next
		r.Next = next.acquireRequest(k)
	}
	return r
}

// wire returns the command for the server.
func (p *protocol) wire(c *command) wire.Command {
	k, s := &p.key, &wire.Sender{Locker: c.locker, Channels: channels, Single: !p.cluster}
	switch c.op {
	case acquire:
		return s.Acquire(c.acquireRequest(k), c.plain, new(wire.Room))
	case acquireShare:
		return s.AcquireShare(c.acquireRequest(k))
	case renew, renewShare:
		cmds, _ := wire.Renewals([]backend.RenewRequest{c.renewRequest(k)}, 1)
		return cmds[0]
	case release:
		return s.Release(c.releaseRequest(k), micros(c.cooldown), new(wire.Room))
	case rotate:
		return s.Rotate(c.releaseRequest(k))
	case releaseShare:
		if c.locker == "" {
			return s.ReleaseShare(c.releaseRequest(k), micros(c.cooldown))
		}
		fallthrough
	case leave:
		return s.Withdraw(&backend.WithdrawRequest{Key: k, ID: c.id, Retention: micros(c.keep), Repeated: c.repeated, Share: c.share})
	case complete:
		return s.Complete(&backend.CompleteRequest{
			Key: k, ID: c.id, Token: c.token, Record: []byte(c.record), Keep: micros(c.keep), Repeated: c.repeated, Plain: c.plain,
		})
	case revoke:
		return s.Revoke(k, c.id, wire.RevokeStep{})
	case clearKey:
		return s.Clear(&backend.ClearRequest{Key: k}, c.id)
	case park:
		return s.Park(&backend.ParkRequest{Key: k, Entry: c.entry, Most: mostParked, Keep: micros(c.keep)})
	case unpark:
		return s.Unpark(&backend.UnparkRequest{Key: k, Remove: c.remove, Marked: c.marked, Woken: c.woken, Prefix: c.prefix})
	case adopt:
		return s.Adopt(&backend.AdoptRequest{Key: k, From: c.from, ID: c.id, Holder: "adopter", Lease: micros(c.lease), Retention: micros(c.retention)})
	case interim:
		return s.Interim(&backend.InterimRequest{Key: k, ID: c.id, Attempt: int(c.attempt), Answer: []byte(c.record)})
	default:
		panic("schedule: unknown command")
	}
}

func (p *protocol) run(now int64, c wire.Command) (any, error) {
	keys, args := c.Texts()
	return p.server.Run(now, c.Name, keys, args)
}

func (p *protocol) send(now int64, c *command) (reply, error) {
	cmd := p.wire(c)
	for {
		v, err := p.run(now, cmd)
		if err != nil {
			return reply{}, err
		}
		_, step, more := wire.DecodeRevoke(wire.Elements(v))
		switch {
		case wire.IsStep(v):
		case c.op == revoke && more && !c.late: // the sender of a late duplicate gets no reply
			cmd = (&wire.Sender{Channels: channels}).Revoke(&p.key, c.id, step)
		default:
			return p.decode(c, wire.Elements(v))
		}
	}
}

// deal runs deal.lua for a plain acquire or release. ok is false if deal.lua does nothing.
func (p *protocol) deal(now int64, c *command) (r reply, ok bool, err error) {
	cmd, terms := p.wire(c), new(wire.HoldTerms)
	if c.op == acquire {
		terms.Set(cmd)
	}
	list := wire.AppendDeal([]any{nil, nil}, 1, func(int) (wire.Command, *wire.HoldTerms) { return cmd, terms })
	v, err := p.run(now, wire.Command{Script: wire.Deal, List: list})
	if err != nil {
		return r, false, err
	}
	ok = true
	grant, err := wire.DealReply(v, 1, c.op == acquire, func(int) { ok = false })
	if err != nil || !ok {
		return r, false, err
	}
	if c.op == acquire {
		r, err = p.decode(c, []any{grant})
		return r, true, err
	}
	return reply{done: true}, true, nil
}

func (p *protocol) decode(c *command, list []any) (r reply, err error) {
	switch c.op {
	case acquire, acquireShare:
		a, err := wire.DecodeAcquire(c.acquireRequest(&p.key), list)
		return acquired(&a), err
	case rotate:
		a, err, nextErr := wire.DecodeRotate(c.releaseRequest(&p.key), list)
		if err == nil {
			err = nextErr
		}
		r = acquired(&a.Next)
		r.done = a.Released
		return r, err
	case park:
		r.park, err = wire.DecodePark(list)
	case unpark:
		r.unpark, err = wire.DecodeUnpark(list)
	case adopt:
		a, err := wire.DecodeAdopt(list)
		return reply{verdict: a.Verdict, token: a.Token, attempt: int64(a.Attempt), abandoned: a.Abandoned, parked: a.Parked}, err
	case renew, renewShare:
		r.verdict, err = wire.DecodeRenew(&p.key, list, 0)
	case interim:
		r.done, err = wire.DecodeInterim(list)
	case clearKey:
		a, err := wire.DecodeClear(list)
		return reply{done: a == backend.Cleared}, err
	case revoke:
		r.done, _, _ = wire.DecodeRevoke(list)
	default:
		a, err := wire.DecodeEnd(list)
		return reply{done: a.Released, parked: a.Parked}, err
	}
	return r, err
}

func acquired(a *backend.AcquireReply) reply {
	return reply{
		outcome: a.Outcome, token: a.Token, attempt: int64(a.Attempt), abandoned: a.Abandoned, phase: a.Phase, remaining: a.Remaining.Microseconds(),
		record: string(a.Record), plain: a.Plain, parked: a.Parked,
	}
}

// inspect returns the state of the key.
func (p *protocol) inspect(now int64) (backend.Status, error) {
	v, err := p.run(now, new(wire.Sender).Inspect(&p.key, backend.NoRecord))
	if err != nil {
		return backend.Status{}, err
	}
	return wire.DecodeInspect(p.key.Kind, wire.Elements(v))
}
