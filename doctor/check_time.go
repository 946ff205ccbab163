package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/quorum"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// measure takes the samples. It returns no error for a user without the right to TIME, because
// tryOut reports that. It returns none for a Sentinel either, which does not know the command.
func (n *node) measure(ctx context.Context) (err error) {
	n.samples, err = clock.Measure(ctx, func() (at time.Time, err error) {
		v, err := n.ask(ctx, "TIME")
		if list, ok := v.([]any); ok && len(list) == 2 {
			sec, _ := strconv.ParseInt(fmt.Sprint(list[0]), 10, 64)
			us, _ := strconv.ParseInt(fmt.Sprint(list[1]), 10, 64)
			at = time.Unix(sec, us*1000)
		}
		return at, err
	})
	if (goredis.HasErrorPrefix(err, "NOPERM") || goredis.HasErrorPrefix(err, "unknown command")) && !noMaster(err) {
		return nil
	}
	return err
}

// checkClock examines the server's clock. Leases count durations on it, never a client's clock.
func (n *node) checkClock() {
	if len(n.samples) == 0 {
		return
	}
	if off, apart := clock.Apart(n.samples); apart {
		n.say(codeClock, SeverityWarning, fmt.Sprintf("the server's clock is %v %s this process's", off.Abs().Round(time.Millisecond), clock.AheadOf(off)),
			"Leases work, because only durations are sent. But when the server's clock is corrected and jumps forward, leases end before their holders notice. Cron ticks (cronmw) begin by the server's clock, and times in logs do not match.",
			"Let both machines follow NTP by slewing, not by stepping.")
	}
	if here, drift, drifts := clock.Drift(n.samples); drifts {
		n.say(codeClockDrift, SeverityProblem, fmt.Sprintf("in %v of this process the server's clock advanced by %v", here.Round(time.Millisecond), (here+drift).Round(time.Millisecond)),
			"A lease ends by the server's clock: if that clock jumps or runs fast by more than 1 %, a second holder may run. If it runs slow, a dead holder's key is free later.",
			"Look at the server's clock (NTP, a virtual machine that was moved or paused) and let it be slewed, not stepped.")
	}
}

// checkLatency compares the slowest reply with the margins of the lease.
func (n *node) checkLatency() {
	if len(n.samples) == 0 {
		return
	}
	p50, p99, worst := clock.Latency(n.samples)
	lease := n.lease
	seen := fmt.Sprintf("%d round trips: p50 %v, p99 %v, max %v; the lease is %v", len(n.samples), p50, p99, worst, lease)
	switch limit := quorum.Limit(lease); {
	case n.voter && worst > limit:
		n.say(codeLatency, SeverityWarning, seen,
			fmt.Sprintf("A server that does not reply within %v counts as failed. If a majority is that slow, nothing is acquired.", limit),
			"Find out what is slow, or use a longer Terms.Lease: the limit is a twentieth of it, and at most 250 ms.")
	case n.voter:
	case worst > lease/10 || worst > callTimeout*9/10:
		n.say(codeLatency, SeverityProblem, seen,
			fmt.Sprintf("A lease is renewed after a third of its time and canceled a tenth before its end, and a command may take %v. Replies as slow as these use up that time, and leases are lost.", callTimeout),
			"Find out what is slow (network, CPU, slow commands of others), or use a longer Terms.Lease.")
	case worst > lease/100:
		n.say(codeLatency, SeverityWarning, seen,
			"Every acquire and release takes that long, and slow replies use up part of a lease.",
			"Find out what is slow, or use a longer Terms.Lease.")
	}
}

// checkServer reports the server that was examined.
func (n *node) checkServer() {
	name, v := n.product()
	if v == "" {
		name, v = "a server", "of unknown version"
	}
	seen := name + " " + v
	if mode := n.mode(); mode != "" {
		seen += ", " + mode
	}
	if len(n.samples) > 0 {
		p50, p99, worst := clock.Latency(n.samples)
		best := clock.Quickest(n.samples)
		seen += fmt.Sprintf("; %d round trips: p50 %v, p99 %v, max %v; clock %+.1f ms to %.1f ms", len(n.samples), p50, p99, worst,
			float64(best.Offset())/1e6, float64(best.Took)/2e6)
	}
	n.say(codeServer, SeverityNote, seen, "This server was checked. The times are those of this moment.", "Nothing to do.")
}

// checkSlow reports commands that have blocked the server, from the slow log. The finding contains
// the name of a command without its arguments.
func (n *node) checkSlow(ctx context.Context) {
	v, ok := n.look(ctx, "SLOWLOG GET", "SLOWLOG", "GET", 128)
	if !ok {
		return
	}
	entries, _ := v.([]any)
	var worst time.Duration
	command, slow := "", 0
	limit := n.lease / 30
	for _, e := range entries {
		f, _ := e.([]any)
		if len(f) < 4 {
			continue
		}
		us, _ := f[2].(int64)
		if d := time.Duration(us) * time.Microsecond; d > limit {
			slow++
			if d > worst {
				worst = d
				if args, _ := f[3].([]any); len(args) > 0 {
					command = fmt.Sprint(args[0])
				}
			}
		}
	}
	if slow > 0 {
		n.say(codeSlowCommands, SeverityWarning, fmt.Sprintf("the slow log has %d commands of more than %v, the slowest %v (%q)", slow, limit, worst.Round(time.Millisecond), command),
			"Redis runs one command at a time: while a slow one runs, nothing is acquired or renewed. A command that takes nearly a lease ends all leases.",
			"Move slow commands elsewhere, split them up, or give holdfast a separate Redis.")
	}
}
