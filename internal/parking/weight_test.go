package parking_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// share runs tasks of 24 keys with 10 workers: more than these can run. The first n keys have the
// weight. After the mean time of 60 tasks, and for that of 100 more, the runs of these keys and of
// the others are counted. A key has more tasks than can run in this time.
func (q *queue) share(n, weight int) (heavy, light int) {
	const workers, keys = 10, 24
	q.terms.Wait, q.terms.Lease = 60*q.work, time.Hour
	q.rnd = rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	q.weights = map[string]int{}
	for k := range keys {
		key, tasks := fmt.Sprint("light", k, ":"), 75
		if k < n {
			key, tasks = fmt.Sprint("heavy", k, ":"), 160
			q.weights[key] = weight
		}
		for _, id := range names(tasks) {
			q.add(key, key+id)
		}
	}
	q.serve(workers)
	time.Sleep(60 * q.work)
	before, delivered := len(q.runs()), q.delivered()
	time.Sleep(100 * q.work)
	runs := q.runs()[before:]
	if each := float64(q.delivered()-delivered) / float64(len(runs)); each > 1.1 {
		q.Errorf("%.2f deliveries for each run, want 1", each)
	}
	if least := 85 * 100 * workers / 100; len(runs) < least {
		q.Errorf("%d runs, want at least %d", len(runs), least)
	}
	for _, id := range runs {
		if strings.HasPrefix(id, "heavy") {
			heavy++
		}
	}
	q.set(func() { // the test ends without the other tasks
		for _, t := range q.order {
			t.paused = true
		}
	})
	return heavy, len(runs) - heavy
}

// Half of the keys have a weight. Their share of the runs is in proportion to it, also if a woken
// task is pending for longer than WokenTime: with the weight 10, and with long tasks.
func TestWeights(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		weight, limit int
		work, minHold time.Duration
		least, most   float64 // runs of the keys with the weight for each run of the others
	}{
		"equal":            {weight: 1, work: time.Second, least: 0.9, most: 1.1},
		"3":                {weight: 3, work: time.Second, least: 2.7, most: 3.3},
		"3, with a limit":  {weight: 3, limit: 5, work: time.Second, least: 2.7, most: 3.3},
		"2, with MinHold":  {weight: 2, work: time.Second, minHold: 1500 * time.Millisecond, least: 1.8, most: 2.2},
		"3, long tasks":    {weight: 3, work: 10 * time.Second, least: 2.7, most: 3.3},
		"10":               {weight: 10, work: time.Second, least: 9, most: 11},
		"10, with a limit": {weight: 10, limit: 5, work: time.Second, least: 9, most: 11},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, lockcore.Options{}, func(q *queue) {
				q.limit.N, q.work, q.terms.MinHold = tt.limit, tt.work, tt.minHold
				heavy, light := q.share(12, tt.weight)
				share := float64(heavy) / float64(light)
				t.Logf("%d and %d runs, %.2f to 1", heavy, light, share)
				if share < tt.least || share > tt.most {
					t.Errorf("%.2f to 1, want %v to %v", share, tt.least, tt.most)
				}
			})
		})
	}
}

// The weight 100 of one key is for 8 of the 10 workers, but its tasks run one at a time. So it is
// nearly always busy, and the other keys have the other workers.
func TestWeightBeyondLimit(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		q.work = time.Second
		heavy, light := q.share(1, 100)
		t.Logf("%d and %d runs", heavy, light)
		if least := 100 * 85 / 100; heavy < least {
			t.Errorf("%d runs in 100 s, want at least %d of 1 s each", heavy, least)
		}
	})
}

// The greatest weight of the only key with parked tasks costs at most one delivery for each run.
func TestWeightAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		q.terms, q.work, q.weights = lockcore.Terms{Wait: lockcore.NoWait, Lease: time.Hour}, time.Second, map[string]int{"key": 100}
		ids := names(40)
		q.add("key", ids...)
		q.serve(10)
		if took := q.done(ids...); took > 50*time.Second {
			t.Errorf("done after %v", took)
		}
		// The first delivery of each task, its run, one that finds the key busy, and one for the weight.
		if n := q.delivered(); n > 4*len(ids) {
			t.Errorf("%d deliveries of %d tasks", n, len(ids))
		}
	})
}
