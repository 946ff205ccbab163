// Package clock compares the clock of a server with that of this process.
package clock

import (
	"context"
	"slices"
	"time"
)

const (
	roundTrips = 50
	enoughTrip = 5 // round trips, if they are slow
	tripPause  = 10 * time.Millisecond
	tripTime   = 2 * time.Second // for all

	apart = time.Second           // a greater difference matters
	noise = 10 * time.Millisecond // what a busy process adds to a sample
)

// Sample is one reply of a server with its time.
type Sample struct {
	Sent  time.Time     // by this process, with its monotonic clock
	Took  time.Duration // round trip
	Clock time.Time     // of the server
}

// Offset is how far the server's clock is ahead, with an error of at most half of Took.
func (s Sample) Offset() time.Duration { return s.Clock.Sub(s.Sent.Round(0).Add(s.Took / 2)) }

// Measure takes samples for about a second. ask returns the time of the server.
func Measure(ctx context.Context, ask func() (time.Time, error)) (samples []Sample, err error) {
	began := time.Now()
	for i := range roundTrips {
		if i >= enoughTrip && time.Since(began) > tripTime {
			break
		}
		s := Sample{Sent: time.Now()}
		if s.Clock, err = ask(); err != nil {
			return samples, err
		}
		s.Took = time.Since(s.Sent)
		samples = append(samples, s)
		select {
		case <-time.After(tripPause):
		case <-ctx.Done():
			return samples, context.Cause(ctx)
		}
	}
	return samples, nil
}

// Quickest returns the sample with the smallest error of the offset. There must be one.
func Quickest(samples []Sample) Sample {
	return slices.MinFunc(samples, func(a, b Sample) int { return int(a.Took - b.Took) })
}

// Apart returns how far the server's clock is ahead, and whether that is more than a second.
func Apart(samples []Sample) (offset time.Duration, is bool) {
	best := Quickest(samples)
	return best.Offset(), best.Offset().Abs()-best.Took/2 > apart
}

// Drift returns how much time passed here during the samples, how much more on the server, and whether
// that is more than a clock of the same rate explains.
func Drift(samples []Sample) (here, drift time.Duration, is bool) {
	third := len(samples) / 3
	if third == 0 {
		return 0, 0, false
	}
	first, last := Quickest(samples[:third]), Quickest(samples[len(samples)-third:])
	here = (last.Sent.Sub(first.Sent) + (last.Took-first.Took)/2).Abs() // monotonic
	drift = last.Clock.Sub(first.Clock) - here
	return here, drift, drift.Abs() > (first.Took+last.Took)/2+here/100+noise
}

// Latency returns the median, the 99th percentile and the maximum of the round trips.
func Latency(samples []Sample) (p50, p99, worst time.Duration) {
	took := make([]time.Duration, 0, len(samples))
	for _, s := range samples {
		took = append(took, s.Took.Round(10*time.Microsecond))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
}

// AheadOf says whether the clock of the server is ahead of this one.
func AheadOf(offset time.Duration) string {
	if offset > 0 {
		return "ahead of"
	}
	return "behind"
}
