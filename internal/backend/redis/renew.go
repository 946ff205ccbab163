package redis

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const scriptBlock = 100 // maximum number of keys of one renew.lua command

// Renew sends a batch in one round trip. If the server does not have a script, Renew sends the
// batch once more in full.
//
// If the whole batch gets the error of a broken connection, Renew sends it again after a
// millisecond. It does so once, and then while the batch uses idle connections, which may all be
// broken, at most 2*ownPoolSize times. So an endpoint that accepts connections and closes them gets
// few dials. If the whole batch gets no connection, Renew sends it by the others. If only a part of a
// batch gets such an error, the other replies must not wait.
//
// In a cluster the caller makes a batch for each server, see Route.
func (b *Backend) Renew(ctx context.Context, rs []backend.RenewRequest) []backend.RenewReply {
	per, c := scriptBlock, b.conn
	if !c.single {
		per = 1 // the keys of one script must share a slot
	}
	v, err := c.inGoroutine(ctx, func() (any, error) {
		res := make([]backend.RenewReply, len(rs))
		if c.renewBy(ctx, c.renews, rs, per, res) {
			return res, nil
		}
		for other := range c.others(c.renews) {
			if c.renewBy(ctx, other, rs, per, res) {
				break
			}
		}
		return res, nil
	})
	if res, ok := v.([]backend.RenewReply); ok && err == nil {
		return res
	}
	res := make([]backend.RenewReply, len(rs))
	for i := range res {
		res[i].Err = err
	}
	return res
}

func unknownScript(r backend.RenewReply) bool {
	return r.Err != nil && redis.HasErrorPrefix(r.Err, "NOSCRIPT")
}

// hasReply reports whether the connection of a renewal was not broken.
func hasReply(r backend.RenewReply) bool { return !broken(r.Err) }

func hasConnection(r backend.RenewReply) bool { return !noConnection(r.Err) }

func (c *conn) dialsOfRenewals() int64 {
	if c.renewDials == nil {
		return 0
	}
	return c.renewDials.made.Load()
}

// renewBy sends a batch by one client, again if necessary. It returns false if the client got no
// connection.
func (c *conn) renewBy(ctx context.Context, on redis.UniversalClient, rs []backend.RenewRequest, per int, res []backend.RenewReply) bool {
	for again, inFull := 0, false; ; {
		dialed := c.dialsOfRenewals()
		c.renewOnce(ctx, on, rs, per, res, inFull)
		stale := again == 0 || c.own && on == c.renews && again < 2*ownPoolSize && dialed == c.dialsOfRenewals() //planted:stale-connections
		switch {
		case !inFull && slices.ContainsFunc(res, unknownScript): //planted:script-unknown
			inFull = true
		case !slices.ContainsFunc(res, hasReply) && stale && backend.Sleep(ctx, time.Millisecond): //planted:renewal-again
			again++
		default:
			return slices.ContainsFunc(res, hasConnection)
		}
	}
}

// renewOnce sends a batch. If inFull is true, it sends the text of the scripts instead of their
// digests.
func (c *conn) renewOnce(ctx context.Context, on redis.UniversalClient, rs []backend.RenewRequest, per int, res []backend.RenewReply, inFull bool) {
	pipe, wait := c.renewPipe(ctx, on, rs[0].Key.Stored[0])
	parts := renewParts(rs, per)
	cmds := make([]*redis.Cmd, len(parts))
	for i, part := range parts {
		s, list := renewList(part)
		if copy(list, s.sha); inFull {
			copy(list, s.text)
		}
		cmds[i] = redis.NewCmd(ctx, list...)
		_ = pipe.Process(ctx, cmds[i])
	}
	acks := wait()
	_, execErr := pipe.Exec(ctx)
	n := 0
	for i, cmd := range cmds {
		err := unreadable(commandErr(cmd, execErr), cmd.Args())
		var reply []any
		if err == nil {
			reply, err = cmd.Slice()
		}
		reloadSlots(ctx, on, err)
		for at := range parts[i] {
			r := &res[n]
			if r.Err = err; err == nil {
				r.Verdict, r.Err = verdict(rs[n].Key.Stored[0], reply, at)
			}
			n++
		}
	}
	c.judgeRenewals(ctx, acks, cmds, res)
}

// renewParts divides a batch into commands. A command has up to per exclusive leases that follow
// each other, or one share.
func renewParts(rs []backend.RenewRequest, per int) (parts [][]backend.RenewRequest) {
	for len(rs) > 0 {
		n := 1
		for rs[0].Share.Limit == 0 && n < min(per, len(rs)) && rs[n].Share.Limit == 0 {
			n++
		}
		parts, rs = append(parts, rs[:n]), rs[n:]
	}
	return parts
}

// renewList returns the script and the list of the command for a part.
func renewList(part []backend.RenewRequest) (*script, []any) {
	if part[0].Share.Limit > 0 {
		return renewShareScript, listOf(shareKeys(part[0].Key), renewShareArgs(&part[0])...)
	}
	list := make([]any, 3, 3+5*len(part))
	list[2] = len(part)
	for i := range part {
		list = append(list, &part[i].Key.Stored[0])
	}
	var lease, retention any // boxed once for successive requests with equal values
	var before *backend.RenewRequest
	for i := range part {
		r := &part[i]
		if before == nil || r.Lease != before.Lease || r.Retention != before.Retention {
			lease, retention, before = micros(r.Lease), millis(r.Retention), r
		}
		list = append(list, &r.ID, lease, retention, published(r))
	}
	return renewScript, list
}

// published returns what renew.lua stores for a new hold, or "".
func published(r *backend.RenewRequest) string {
	if r.Token == 0 {
		return ""
	}
	return strconv.FormatInt(r.Token, 10) + " " + r.Holder
}

// verdict decodes the reply of renew.lua for a key, at index i. A key that cannot be read is
// neither kept nor lost, and the timer of its hold decides.
func verdict(stored string, reply []any, i int) (backend.Verdict, error) {
	switch bad := text(reply, i); bad {
	case "":
	case "x", "d":
		return 0, &backend.DataError{Stored: stored, Field: bad}
	default:
		return 0, &backend.DataError{Stored: stored, Reply: &replyError{bad}}
	}
	n, err := number(reply, i)
	switch {
	case err != nil:
		return 0, err
	case n == 1:
		return backend.VerdictKept, nil
	case n == 2:
		return backend.VerdictRevoked, nil
	}
	return backend.VerdictLost, nil
}

// Extend renews one lease.
func (b *Backend) Extend(ctx context.Context, r backend.RenewRequest) (backend.RenewReply, time.Time) {
	var reply []any
	var sent time.Time
	var err error
	if r.Share.Limit > 0 {
		reply, sent, err = b.extendShare(ctx, &r)
	} else {
		reply, sent, err = b.conn.insist(ctx, b.conn.ends, renewScript, r.Key.Stored[:1], r.ID, micros(r.Lease), millis(r.Retention), published(&r))
	}
	if err != nil {
		return backend.RenewReply{Err: err}, sent
	}
	v, err := verdict(r.Key.Stored[0], reply, 0)
	return backend.RenewReply{Verdict: v, Err: err}, sent
}
