package batch

import "time"

const (
	roundTripUnit   = 150 * time.Microsecond // the limit is 1 plus the number of whole units in the shortest round trip
	roundTripWindow = time.Second
	maxLimit        = 8
)

// roundTrips contains the shortest round trip to a server in the current window and in the previous
// one. The shortest one measures the network. Longer ones also include the load of the machine.
type roundTrips struct {
	previous, current time.Duration // 0: none
	end               time.Time     // of the current window
}

// add records a round trip that ended at now.
func (t *roundTrips) add(now time.Time, took time.Duration) {
	if !now.Before(t.end) {
		t.previous, t.current, t.end = t.current, 0, now.Add(roundTripWindow)
	}
	if t.current == 0 || took < t.current {
		t.current = took
	}
}

// limit returns how many sends may be in flight before calls wait. On a slow network, a call that
// waits for the end of another send loses more time than a group saves.
func (t *roundTrips) limit() int {
	shortest := t.current
	if t.previous > 0 {
		shortest = min(shortest, t.previous)
	}
	return min(1+int(shortest/roundTripUnit), maxLimit)
}
