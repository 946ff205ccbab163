package soak_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/chaos"
)

// judge compares the reports of the workers with the data in Redis. It returns how often a holder
// had died.
func (r *run) judge(reports []report) (abandoned int) {
	r.Helper()
	var hot []int
	var all, handed, refused, gone int
	var longest int64
	for i, w := range reports {
		for _, e := range w.Errors {
			r.Errorf("worker %d: %s", i, e)
		}
		for _, n := range w.Acquired {
			all += n
		}
		hot = append(hot, w.Hot)
		handed += w.HandedOver
		refused += w.Refused
		gone += w.Gone
		abandoned += w.Abandoned
		longest = max(longest, w.LongestMS)
	}
	r.checkCounts(reports)
	r.checkLeftovers()
	r.Logf("soak: %v, %d processes, %d killed: %d acquisitions, %d of them handed off, %d after a dead holder, %d refused, %d waits canceled, longest wait %d ms, shares of the hot key %d",
		*runFor, r.procs, r.kills, all, handed, abandoned, refused, gone, longest, hot)
	mean := 0.0
	for _, n := range hot {
		mean += float64(n) / float64(len(hot))
	}
	if *runFor >= judgeShares && float64(slices.Min(hot)) < evenShare*mean {
		r.Errorf("shares of the hot key are %d: the smallest is less than %v of the mean", hot, evenShare)
	}
	if all < *atLeast || gone == 0 || refused == 0 || handed == 0 {
		r.Error("inconclusive")
	}
	return abandoned
}

// checkCounts compares the shared counter of each key with the counts of the single processes,
// including those that were killed. The shared counter loses an increment if two holders are ever
// inside. checkCounts also compares the counts with the reports of the workers.
func (r *run) checkCounts(reports []report) {
	r.Helper()
	rdb, sums := r.server.Client(r), map[string]int{}
	own, err := rdb.Keys(r.Context(), "by:*").Result()
	if err != nil || len(own) == 0 {
		r.Fatalf("no process counted: %v", err)
	}
	for _, key := range own {
		n, err := rdb.Get(r.Context(), key).Int()
		if err != nil {
			r.Error(err)
		}
		sums[key[strings.LastIndex(key, ":")+1:]] += n
	}
	for key, sum := range sums {
		if n, err := rdb.Get(r.Context(), "count:"+key).Int(); err != nil || n != sum {
			r.Errorf("%s: counted %d together and %d alone (%v)", key, n, sum, err)
		}
	}
	for i, w := range reports {
		for key, n := range w.Acquired {
			if got, err := rdb.Get(r.Context(), fmt.Sprintf("by:w%d:%s", i, key)).Int(); err != nil || got != n {
				r.Errorf("worker %d: acquired %s %d times, counted %d (%v)", i, key, n, got, err)
			}
		}
	}
}

// checkLeftovers checks that no key is held and no channel has a subscriber.
func (r *run) checkLeftovers() {
	r.Helper()
	rdb := r.server.Client(r)
	chaos.CheckLeftovers(r, rdb, 0)
	if ch := rdb.PubSubChannels(r.Context(), "holdfast:*").Val(); len(ch) != 0 {
		r.Errorf("still subscribed: %v", ch)
	}
}
