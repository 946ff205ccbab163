package redis_test

import (
	"testing"
	"time"
)

var keyQueue = []string{dead + dead, listener + next}

// passed returns the fields after the key was reserved for the first live waiter.
func passed(was fields, gone ...string) fields {
	return was.without("v").without(gone...).with(fields{"s": "r", "h": next, "o": listener, "x": rel(window), "d": span(window)})
}

// A renewal stores the last hold after a hand-off. A hold that cannot be read is not stored, and the
// lease is renewed.
func TestScriptLastHold(t *testing.T) {
	onEach(t, func(b *oneKey) {
		renewed := states()["mine"].with(fields{"x": rel(lease), "d": span(lease)})
		for lastHold, want := range map[string]fields{
			"8000000000000001 who N\nof the\n two": renewed.with(fields{"t": 8000000000000001, "m": "who N\nof the\n two"}),
			"4711 an earlier hold":                 renewed, " ": renewed, "4711": renewed, "-1 who": renewed, "1e3 who": renewed, "x 4711 who": renewed,
		} {
			b.set(states()["mine"])
			b.wantReply(renewFor(me, lease, lastHold), 1)
			b.like(want)
		}
	})
}

// A renewal or a late duplicate of a request does not shorten a lease. A renewal also stores how
// long the lease can last.
// Shows: I5
func TestScriptExtend(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["mine"])
		b.wantReply(renewFor(me, time.Hour, ""), 1)
		long := states()["mine"].with(fields{"x": rel(time.Hour), "d": span(time.Hour)})
		b.like(long)
		b.wantReply(renew(me), 1)
		b.wantReply(renewFor(me, 0, ""), 1) // a lease of 0 only checks the hold
		b.like(long)
		b.must(b.rdb.HSet(b.Context(), b.keys[0], "d", (2 * time.Hour).Microseconds()).Err())
		b.wantReply(renewFor(me, 0, ""), 1)
		b.like(long.with(fields{"d": span(2 * time.Hour)}))
		b.wantReply(renew(me), 1) // d before the end is the time of this renewal
		b.like(long)
		b.wantReply(acquire(me, mine, "exclusive", "", 0), 1, rel(-10*time.Second), 1, 0) // a late duplicate
		b.like(long)

		for _, c := range []call{acquire(me, mine, "exclusive", "", 0), renew(me)} { // a longer lease than before
			b.set(states()["mine"].with(fields{"x": rel(8 * time.Second), "d": span(10 * time.Second)}))
			b.run(c)
			b.like(states()["mine"].with(fields{"x": rel(lease), "d": span(lease)}))
		}
	})
}
