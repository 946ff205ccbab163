package main

import (
	"math/bits"
	"time"
)

const (
	subBits    = 5 // 32 buckets per power of two: a quantile is off by at most 1.6 %
	subBuckets = 1 << subBits
	maxBits    = 38 // 2^38 ns, over 4 minutes, is longer than any run waits
	allBuckets = (maxBits - subBits + 1) * subBuckets
)

// histogram counts durations in log-linear buckets. The workers record a million values per second.
// So each worker has a separate histogram without a mutex, and these are merged at the end.
type histogram struct {
	counts [allBuckets]uint32
	max    time.Duration
}

// bucketOf keeps the first subBits+1 binary digits of d.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return min(shift*subBuckets+int(v>>shift), allBuckets-1)
}

// bucketMiddle returns the value that represents a bucket.
func bucketMiddle(b int) time.Duration {
	shift := max(b/subBuckets-1, 0)
	low := uint64(b-shift*subBuckets) << shift
	return time.Duration(low + (uint64(1)<<shift)/2)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.max = max(h.max, d)
}

// waits is a histogram in the form that processes send to each other: only the buckets in use.
type waits struct {
	Counts map[int]int64 `json:"counts"`
	Max    time.Duration `json:"max"`
}

func (w *waits) add(d time.Duration) {
	w.put(bucketOf(d), 1)
	w.Max = max(w.Max, d)
}

func (w *waits) put(bucket int, n int64) {
	if w.Counts == nil {
		w.Counts = map[int]int64{}
	}
	w.Counts[bucket] += n
}

func (w *waits) mergeHistogram(h *histogram) {
	for b, n := range h.counts {
		if n > 0 {
			w.put(b, int64(n))
		}
	}
	w.Max = max(w.Max, h.max)
}

func (w *waits) merge(o waits) {
	for b, n := range o.Counts {
		w.put(b, n)
	}
	w.Max = max(w.Max, o.Max)
}

// quantile returns the duration that a part q of all waits did not exceed, or 0 without waits.
func (w *waits) quantile(q float64) time.Duration {
	var total int64
	for _, n := range w.Counts {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank := max(int64(q*float64(total)+0.5), 1)
	for b := range allBuckets {
		if rank -= w.Counts[b]; rank <= 0 {
			return min(bucketMiddle(b), w.Max)
		}
	}
	return w.Max
}
