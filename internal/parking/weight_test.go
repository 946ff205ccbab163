package parking_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// 20 keys have more parked tasks than the workers can run. Half of the keys have a weight. Their
// share of the runs is in proportion to it.
func TestWeights(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		weight, limit int
		least, most   float64 // runs of the keys with the weight for each run of the others
	}{
		"equal":           {weight: 1, least: 0.9, most: 1.1},
		"3":               {weight: 3, least: 2.7, most: 3.3},
		"3, with a limit": {weight: 3, limit: 5, least: 2.7, most: 3.3},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, lockcore.Options{}, func(q *queue) {
				q.terms, q.limit.N = lockcore.Terms{Wait: time.Minute, Lease: time.Hour}, tt.limit
				q.work, q.rnd = time.Second, rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
				q.weights = map[string]int{}
				for k := range 20 {
					key := fmt.Sprint(k, ":")
					if k%2 == 0 {
						q.weights[key] = tt.weight
					}
					for _, id := range names(60 * tt.weight) {
						q.add(key, key+id)
					}
				}
				q.serve(10)
				q.until("each task was delivered", func() bool {
					q.mu.Lock()
					defer q.mu.Unlock()
					return !slices.ContainsFunc(q.order, func(t *task) bool { return t.State == parking.Pending && t.LastError == "" })
				})
				time.Sleep(10 * time.Second)
				before, delivered := len(q.runs()), q.delivered()
				time.Sleep(time.Minute)
				runs := q.runs()[before:]
				delivered = q.delivered() - delivered
				q.set(func() { // the test ends without the others
					for _, t := range q.order {
						t.paused = true
					}
				})
				heavy := 0
				for _, id := range runs {
					key, _, _ := strings.Cut(id, ":")
					if k, err := strconv.Atoi(key); err != nil {
						t.Fatal(err)
					} else if k%2 == 0 {
						heavy++
					}
				}
				share, each := float64(heavy)/float64(len(runs)-heavy), float64(delivered)/float64(len(runs))
				t.Logf("%d runs, %.2f to 1, %.2f deliveries each", len(runs), share, each)
				if share < tt.least || share > tt.most || each > 1.1 || len(runs) < 500 {
					t.Errorf("%d runs, %.2f to 1, want %v to %v; %.2f deliveries each, want 1", len(runs), share, tt.least, tt.most, each)
				}
			})
		})
	}
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
