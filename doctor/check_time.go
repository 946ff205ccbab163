package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/quorum"
)

const (
	roundTrips = 50
	enoughTrip = 5 // round trips, if they are slow
	tripPause  = 10 * time.Millisecond
	tripTime   = 2 * time.Second // for all

	clockApart = time.Second           // a greater difference is a finding
	clockNoise = 10 * time.Millisecond // what a busy process adds to a sample
)

// sample is one reply to TIME.
type sample struct {
	sent  time.Time     // by this process, with its monotonic clock
	took  time.Duration // round trip
	clock time.Time     // of the server
}

// offset is how far the server's clock is ahead, with an error of at most half of took.
func (s sample) offset() time.Duration { return s.clock.Sub(s.sent.Round(0).Add(s.took / 2)) }

// measure takes the samples. It returns no error for a user without the right to TIME, because
// tryOut reports that. It returns none for a Sentinel either, which does not know the command.
func (n *node) measure(ctx context.Context) error {
	began := time.Now()
	for i := range roundTrips {
		if i >= enoughTrip && time.Since(began) > tripTime {
			break
		}
		sent := time.Now()
		v, err := n.ask(ctx, "TIME")
		if (goredis.HasErrorPrefix(err, "NOPERM") || goredis.HasErrorPrefix(err, "unknown command")) && !noMaster(err) {
			return nil
		}
		if err != nil {
			return err
		}
		s := sample{sent: sent, took: time.Since(sent)}
		if list, ok := v.([]any); ok && len(list) == 2 {
			sec, _ := strconv.ParseInt(fmt.Sprint(list[0]), 10, 64)
			us, _ := strconv.ParseInt(fmt.Sprint(list[1]), 10, 64)
			s.clock = time.Unix(sec, us*1000)
		}
		n.samples = append(n.samples, s)
		select {
		case <-time.After(tripPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// quickest returns the sample with the smallest error of the offset.
func quickest(samples []sample) sample {
	return slices.MinFunc(samples, func(a, b sample) int { return int(a.took - b.took) })
}

// checkClock examines the server's clock. Leases count durations on it, never a client's clock.
func (n *node) checkClock() {
	if len(n.samples) == 0 {
		return
	}
	best := quickest(n.samples)
	if off := best.offset(); off.Abs()-best.took/2 > clockApart {
		n.say(codeClock, SeverityWarning, fmt.Sprintf("the server's clock is %v %s this process's", off.Abs().Round(time.Millisecond), aheadOf(off)),
			"Leases work, because only durations are sent. But when the server's clock is corrected and jumps forward, leases end before their holders notice. Cron ticks (cronmw) begin by the server's clock, and times in logs do not match.",
			"Let both machines follow NTP by slewing, not by stepping.")
	}
	third := len(n.samples) / 3
	if third == 0 {
		return
	}
	first, last := quickest(n.samples[:third]), quickest(n.samples[len(n.samples)-third:])
	here := (last.sent.Sub(first.sent) + (last.took-first.took)/2).Abs() // monotonic
	drift := last.clock.Sub(first.clock) - here
	if drift.Abs() > (first.took+last.took)/2+here/100+clockNoise {
		n.say(codeClockDrift, SeverityProblem, fmt.Sprintf("in %v of this process the server's clock advanced by %v", here.Round(time.Millisecond), (here+drift).Round(time.Millisecond)),
			"A lease ends by the server's clock: if that clock jumps or runs fast by more than 1 %, a second holder may run. If it runs slow, a dead holder's key is free later.",
			"Look at the server's clock (NTP, a virtual machine that was moved or paused) and let it be slewed, not stepped.")
	}
}

func aheadOf(d time.Duration) string {
	if d > 0 {
		return "ahead of"
	}
	return "behind"
}

// checkLatency compares the slowest reply with the margins of the lease.
func (n *node) checkLatency() {
	if len(n.samples) == 0 {
		return
	}
	p50, p99, worst := n.latency()
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

func (n *node) latency() (p50, p99, worst time.Duration) {
	took := make([]time.Duration, 0, len(n.samples))
	for _, s := range n.samples {
		took = append(took, s.took.Round(10*time.Microsecond))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
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
		p50, p99, worst := n.latency()
		best := quickest(n.samples)
		seen += fmt.Sprintf("; %d round trips: p50 %v, p99 %v, max %v; clock %+.1f ms to %.1f ms", len(n.samples), p50, p99, worst,
			float64(best.offset())/1e6, float64(best.took)/2e6)
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
