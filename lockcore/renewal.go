package lockcore

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// renewal is the result for one lease.
type renewal struct {
	kept   int64
	holder *hold // the hold that Redis knows after this renewal
	err    error
}

// batches groups leases by node in a Cluster, and by size, so that a slow or dead server delays
// only its own leases.
func (c *conn) batches(ctx context.Context, all []*grant) [][]*grant {
	byNode := map[string][]*grant{"": all}
	if cluster, ok := c.renews.(*redis.ClusterClient); ok {
		byNode = routed(ctx, cluster, all)
	}
	var out [][]*grant
	for _, gs := range byNode {
		for len(gs) > batchKeys {
			out = append(out, gs[:batchKeys])
			gs = gs[batchKeys:]
		}
		out = append(out, gs)
	}
	return out
}

// renew sends one batch in one round trip. If the server does not have the script, it sends the
// batch once more in full.
func (c *conn) renew(ctx context.Context, batch []*grant) []renewal {
	per := scriptBlock
	if !c.single {
		per = 1 // keys of one script must share a slot
	}
	v, err := c.apart(ctx, func() (any, error) {
		res := make([]renewal, len(batch))
		c.renewBy(ctx, batch, per, res, renewScript.sha)
		for _, r := range res {
			if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") { //planted:script-unknown
				c.renewBy(ctx, batch, per, res, renewScript.text)
				break
			}
		}
		return res, nil
	})
	if res, ok := v.([]renewal); ok && err == nil {
		return res
	}
	res := make([]renewal, len(batch))
	for i := range res {
		res[i].err = err
	}
	return res
}

func (c *conn) renewBy(ctx context.Context, batch []*grant, per int, res []renewal, script []any) {
	pipe, wait := c.renewPipe(ctx, batch[0].queue.keys[0])
	var cmds []*redis.Cmd
	var lease, retention any // of before, because most leases have the same
	var before *grant
	for n, part := range slices.Collect(slices.Chunk(batch, per)) {
		list := make([]any, 0, 3+5*len(part))
		list = append(append(list, script...), len(part))
		for _, g := range part {
			list = append(list, &g.queue.keys[0])
		}
		for i, g := range part {
			h, news := g.unpublished()
			res[n*per+i].holder = h
			if before == nil || g.terms != before.terms || g.keep != before.keep {
				lease, retention, before = micros(g.terms.Lease), g.retention(g.terms.Lease), g
				if g.terms.NoRenew {
					lease = 0 // not extended, only read
				}
			}
			list = append(list, &g.id, lease, retention, news)
		}
		cmd := redis.NewCmd(ctx, list...)
		cmds = append(cmds, cmd)
		_ = pipe.Process(ctx, cmd)
	}
	acks := wait()
	_, execErr := pipe.Exec(ctx)
	for n, cmd := range cmds {
		err := commandErr(cmd, execErr)
		var reply []any
		if err == nil {
			reply, err = cmd.Slice()
		}
		stale(ctx, c.renews, err)
		for i := range min(per, len(batch)-n*per) {
			r := &res[n*per+i]
			if r.err = err; err == nil {
				r.kept, r.err = renewed(batch[n*per+i].queue.keys[0], reply, i)
			}
		}
	}
	c.judgeRenewals(ctx, acks, cmds, res)
}

// renewed reads the reply of renew.lua for key, at index i. A key that cannot be read is neither kept nor lost: its
// holder's timer decides.
func renewed(key string, reply []any, i int) (kept int64, err error) {
	switch bad := text(reply, i); bad {
	case "":
		return number(reply, i)
	case "x", "d":
		return 0, fmt.Errorf("%w: field %q of the hash %q cannot be read", ErrRecord, bad, key)
	default:
		return 0, fmt.Errorf("%w: hash %q: %s", ErrRecord, key, bad)
	}
}
