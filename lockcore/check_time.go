package lockcore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	roundTrips = 50
	enoughTrip = 5 // of them, if they are slow
	tripPause  = 10 * time.Millisecond
	tripTime   = 2 * time.Second // for all

	clockApart = time.Second           // more than this is worth a word
	clockNoise = 10 * time.Millisecond // what a busy process adds to a sample
)

// sample is one TIME.
type sample struct {
	sent  time.Time     // here, with its monotonic clock
	took  time.Duration // there and back
	clock time.Time     // there
}

// offset is how far the server's clock is ahead, to half of took.
func (s sample) offset() time.Duration { return s.clock.Sub(s.sent.Round(0).Add(s.took / 2)) }

// measure takes the samples. A user without the right to TIME is not turned away here: that is for tryOut to say. Nor is a Sentinel,
// which does not know the command.
func (n *node) measure(ctx context.Context) error {
	began := time.Now()
	for i := range roundTrips {
		if i >= enoughTrip && time.Since(began) > tripTime {
			break
		}
		sent := time.Now()
		v, err := n.ask(ctx, "TIME")
		if (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command")) && !noMaster(err) {
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

// quickest is the sample whose clock is known best.
func quickest(samples []sample) sample {
	return slices.MinFunc(samples, func(a, b sample) int { return int(a.took - b.took) })
}

// checkClock: leases count durations, never a client's clock.
func (n *node) checkClock() {
	if len(n.samples) == 0 {
		return
	}
	best := quickest(n.samples)
	if off := best.offset(); off.Abs()-best.took/2 > clockApart {
		n.say(CodeClock, SeverityWarning, fmt.Sprintf("the server's clock is %v %s this process's", off.Abs().Round(time.Millisecond), aheadOf(off)),
			"Leases do not mind: only durations are sent. But a wrong clock is set right one day, and if the server's jumps forward, leases end before their holders know. Cron ticks begin by the server's clock (cronmw), and times in logs do not fit together.",
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
		n.say(CodeClockDrift, SeverityProblem, fmt.Sprintf("in %v of this process the server's clock went on by %v", here.Round(time.Millisecond), (here+drift).Round(time.Millisecond)),
			"A lease ends by the server's clock: if that jumps or runs fast by more than 1 %, a second holder may run; if slow, a dead holder's key is free later.",
			"Look at the server's clock (NTP, a virtual machine that was moved or paused) and let it be slewed, not stepped.")
	}
}

func aheadOf(d time.Duration) string {
	if d > 0 {
		return "ahead of"
	}
	return "behind"
}

// checkLatency compares the slowest answer with the margins of the lease.
func (n *node) checkLatency() {
	if len(n.samples) == 0 {
		return
	}
	p50, p99, worst := n.latency()
	lease := n.l.terms.Lease
	seen := fmt.Sprintf("%d round trips: p50 %v, p99 %v, max %v; the lease is %v", len(n.samples), p50, p99, worst, lease)
	switch {
	case worst > lease/10 || worst > callTimeout*9/10:
		n.say(CodeLatency, SeverityProblem, seen,
			fmt.Sprintf("A lease is renewed at a third and given up a tenth before its end, and a command is given %v: answers as slow as this use that up, and leases are lost.", callTimeout),
			"Find out what is slow (network, CPU, slow commands of others), or take a longer Terms.Lease.")
	case worst > lease/100:
		n.say(CodeLatency, SeverityWarning, seen,
			"Every acquire and release takes that long, and slow answers shorten what is left of a lease.",
			"Find out what is slow, or take a longer Terms.Lease.")
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

// checkServer says what was examined.
func (n *node) checkServer() {
	name, v := n.product()
	if v == "" {
		name, v = "a server", "of unknown version"
	}
	seen := name + " " + v
	if mode := n.info["redis_mode"]; mode != "" {
		seen += ", " + mode
	}
	if len(n.samples) > 0 {
		p50, p99, worst := n.latency()
		best := quickest(n.samples)
		seen += fmt.Sprintf("; %d round trips: p50 %v, p99 %v, max %v; clock %+.1f ms to %.1f ms", len(n.samples), p50, p99, worst,
			float64(best.offset())/1e6, float64(best.took)/2e6)
	}
	n.say(CodeServer, SeverityNote, seen, "This is what was checked; times are of this moment.", "Nothing to do.")
}

// checkSlow: the slow log remembers what has blocked the server. Only the name of a command is told.
func (n *node) checkSlow(ctx context.Context) {
	v, ok := n.look(ctx, "SLOWLOG GET", "SLOWLOG", "GET", 128)
	if !ok {
		return
	}
	entries, _ := v.([]any)
	var worst time.Duration
	command, slow := "", 0
	limit := n.l.terms.Lease / 30
	for _, e := range entries {
		f, _ := e.([]any)
		if len(f) < 4 {
			continue
		}
		us, _ := f[2].(int64)
		if d := micro(us); d > limit {
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
		n.say(CodeSlowCommands, SeverityWarning, fmt.Sprintf("the slow log has %d commands of more than %v, the slowest %v (%q)", slow, limit, worst.Round(time.Millisecond), command),
			"Redis does one thing at a time: while such a command runs, nothing is acquired or renewed. One of nearly a lease ends all leases.",
			"Move slow commands elsewhere, split them up, or give holdfast a Redis of its own.")
	}
}
