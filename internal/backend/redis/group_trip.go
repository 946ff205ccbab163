package redis

import "time"

const (
	tripUnit   = 150 * time.Microsecond // for each of these in a round trip, one more call or group may be under way
	tripWindow = time.Second
	maxLimit   = 8
)

// trips has the shortest round trip to a server in this window and in the one before. The shortest
// one shows the network: on a loaded machine the others also show the load.
type trips struct {
	before, now time.Duration // 0: none
	end         time.Time     // of this window
}

// add counts a round trip that ended at now.
func (t *trips) add(now time.Time, took time.Duration) {
	if !now.Before(t.end) {
		t.before, t.now, t.end = t.now, 0, now.Add(tripWindow)
	}
	if t.now == 0 || took < t.now {
		t.now = took
	}
}

// limit returns how many calls and groups may be under way before calls wait. On a slow network, a call that
// waits for a reply to others loses more time than a group saves.
func (t *trips) limit() int {
	shortest := t.now
	if t.before > 0 {
		shortest = min(shortest, t.before)
	}
	return min(1+int(shortest/tripUnit), maxLimit)
}
