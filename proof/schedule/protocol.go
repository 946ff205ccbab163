package schedule

import (
	"errors"

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
	withdraw
	complete
	revoke
	clearKey
	park
	unpark
	adopt
	interim
	spend
	ops
)

var opNames = [ops]string{"acquire", "renew", "release", "rotate", "withdraw", "complete", "revoke", "clear", "park", "unpark", "adopt", "interim", "spend"}

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
	attempt   int    // interim
	locker    string
	mode      string
	share     backend.Share
	calls     int // acquire with a rate: how many calls of the process wait
	lease     int64
	retention int64 // acquire, renew, rotate: how long an abandoned hold is kept
	keep      int64 // release, rotate, withdraw: how long the free key is kept; complete: the record; park: the entries
	token     int64 // the greatest token used; renew: the token of the hold to publish, or 0
	cooldown  int64
	record    string // interim: the answer
	queue     bool   // enter the queue
	abandon   bool
	repeated  bool // the script remembers the id
	plain     bool // acquire: the grant may be a plain hold; complete: it was a plain hold; release: the same, and the clock is past its tokens
	many      bool // a plain acquire or release: grant_many.lua runs first, and if it does nothing, the script of the command
	late      bool // a late duplicate

	entry  string   // to park
	remove []string // entries to unpark
	marked int64    // remove only those with a mark that is not newer; 0: all
	woken  int      // how many entries with the prefix to wake
	prefix string

	sent     int64
	finished int // number of commands that had added an ended id when this one was sent
}

const mostParked = 3 // entries of a key

// request returns the request of a command for a key. For a revocation it is the key.
func (c *command) request(k *backend.Key) any {
	switch c.op {
	case acquire:
		return &backend.AcquireRequest{
			Key: k, ID: c.id, Holder: "holder", Lease: micros(c.lease), Retention: micros(c.retention), AtMostOnce: c.mode == atMostOnce,
			Queue: c.queue, First: c.plain, Share: c.share, Calls: c.calls,
		}
	case renew:
		r := &backend.RenewRequest{Key: k, ID: c.id, Lease: micros(c.lease), Retention: micros(c.retention), Token: c.token, Share: c.share}
		if c.token != 0 {
			r.Holder = "next holder"
		}
		return r
	case release, rotate:
		r := &backend.ReleaseRequest{
			Key: k, ID: c.id, Token: c.token, Retention: micros(c.keep), Abandon: c.abandon, Repeated: c.repeated, Share: c.share, Plain: c.plain,
		}
		if c.op == rotate {
			r.Next = &backend.AcquireRequest{
				Key: k, ID: c.next, Holder: "next holder", Lease: micros(c.lease), Retention: micros(c.retention), Queue: c.queue,
			}
		}
		return r
	case withdraw:
		return &backend.WithdrawRequest{Key: k, ID: c.id, Retention: micros(c.keep), Repeated: c.repeated, Share: c.share}
	case complete:
		return &backend.CompleteRequest{
			Key: k, ID: c.id, Token: c.token, Record: []byte(c.record), Keep: micros(c.keep), Repeated: c.repeated, Plain: c.plain,
		}
	case revoke:
		return k
	case clearKey:
		return &backend.ClearRequest{Key: k}
	case park:
		return &backend.ParkRequest{Key: k, Entry: c.entry, Most: mostParked, Keep: micros(c.keep)}
	case unpark:
		return &backend.UnparkRequest{Key: k, Remove: c.remove, Marked: c.marked, Woken: c.woken, Prefix: c.prefix}
	case adopt:
		return &backend.AdoptRequest{Key: k, From: c.from, ID: c.id, Holder: "adopter", Lease: micros(c.lease), Retention: micros(c.retention)}
	case interim:
		return &backend.InterimRequest{Key: k, ID: c.id, Attempt: c.attempt, Answer: []byte(c.record)}
	case spend:
		return c.share.Rate
	default:
		panic("schedule: unknown command")
	}
}

// protocol sends the requests of commands to the server, and decodes the replies.
type protocol struct {
	server  Server
	key     backend.Key
	cluster bool
}

func newProtocol(s Server, kind backend.Kind, cluster bool) protocol {
	return protocol{
		server: s, cluster: cluster,
		key: backend.Key{Kind: kind, Name: "key", Stored: wire.StoredNames("schedule", kind, "key")},
	}
}

// encode returns the command of a request r, which c sends.
func (p *protocol) encode(c *command, r any) wire.Command {
	s := &wire.Sender{Locker: c.locker, Channels: channels, Single: !p.cluster}
	switch r := r.(type) {
	case *backend.AcquireRequest:
		switch {
		case r.Share.Throttled():
			return s.Throttle(r)
		case !r.Share.Alone():
			return s.AcquireShare(r)
		}
		return s.Acquire(r, r.First, new(wire.Room))
	case *backend.RenewRequest:
		cmds, _ := wire.Renewals([]backend.RenewRequest{*r}, 1)
		return cmds[0]
	case *backend.ReleaseRequest:
		switch {
		case r.Share.Limit > 0:
			return s.ReleaseShare(r, micros(c.cooldown))
		case r.Next != nil:
			return s.Rotate(r)
		}
		return s.Release(r, micros(c.cooldown), new(wire.Room))
	case *backend.WithdrawRequest:
		return s.Withdraw(r)
	case *backend.CompleteRequest:
		return s.Complete(r)
	case *backend.Key:
		return s.Revoke(&backend.RevokeRequest{Key: r}, c.id, wire.RevokeStep{})
	case *backend.ClearRequest:
		return s.Clear(r, c.id)
	case *backend.ParkRequest:
		return s.Park(r)
	case *backend.UnparkRequest:
		return s.Unpark(r)
	case *backend.AdoptRequest:
		return s.Adopt(r)
	case *backend.InterimRequest:
		return s.Interim(r)
	case backend.Rate:
		return s.Spend(&p.key, r)
	default:
		panic("schedule: unknown request")
	}
}

func (p *protocol) run(now int64, c wire.Command) (any, error) {
	keys, args := c.Texts()
	return p.server.Run(now, c.Name, keys, args)
}

// send runs the script of a request, and returns the reply of package backend.
func (p *protocol) send(now int64, c *command, r any) (any, error) {
	cmd := p.encode(c, r)
	for {
		v, err := p.run(now, cmd)
		if err != nil {
			return nil, err
		}
		_, step, more := wire.DecodeRevoke(wire.Elements(v))
		switch {
		case wire.IsStep(v):
		case c.op == revoke && more:
			cmd = (&wire.Sender{Channels: channels}).Revoke(&backend.RevokeRequest{Key: &p.key}, c.id, step)
		default:
			return decode(r, wire.Elements(v))
		}
	}
}

// grantMany runs grant_many.lua for a plain acquire or release. done is false if grant_many.lua
// does nothing.
func (p *protocol) grantMany(now int64, c *command, r any) (reply any, done bool, err error) {
	cmd, terms := p.encode(c, r), new(wire.HoldTerms)
	if c.op == acquire {
		terms.Set(cmd)
	}
	list := wire.AppendGrantMany([]any{nil, nil}, 1, func(int) (wire.Command, *wire.HoldTerms) { return cmd, terms })
	v, err := p.run(now, wire.Command{Script: wire.GrantMany, List: list})
	if err != nil {
		return nil, false, err
	}
	done = true
	grant, err := wire.GrantManyReply(v, 1, c.op == acquire, func(int) { done = false })
	if err != nil || !done {
		return nil, false, err
	}
	if c.op == acquire {
		reply, err = decode(r, []any{grant})
		return reply, true, err
	}
	return backend.ReleaseReply{Released: true}, true, nil
}

// decode decodes the reply to a request. It returns nil for a request that has no reply in package
// backend.
func decode(r any, list []any) (any, error) {
	switch r := r.(type) {
	case *backend.AcquireRequest:
		return wire.DecodeAcquire(r, list)
	case *backend.RenewRequest:
		return wire.DecodeRenew(r.Key, list, 0)
	case *backend.ReleaseRequest:
		if r.Next != nil {
			reply, err, nextErr := wire.DecodeRotate(r, list)
			return reply, errors.Join(err, nextErr)
		}
		return wire.DecodeEnd(list)
	case *backend.CompleteRequest:
		return wire.DecodeEnd(list)
	case *backend.ClearRequest:
		return wire.DecodeClear(list)
	case *backend.ParkRequest:
		return wire.DecodePark(list)
	case *backend.UnparkRequest:
		return wire.DecodeUnpark(list)
	case *backend.AdoptRequest:
		return wire.DecodeAdopt(list)
	case *backend.InterimRequest:
		return wire.DecodeInterim(list)
	default:
		return nil, nil
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
