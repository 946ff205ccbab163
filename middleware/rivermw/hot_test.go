//go:build unix

package rivermw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
)

func snoozes(tb testing.TB, job *rivertype.JobRow) int {
	tb.Helper()
	var m struct{ Snoozes int }
	if err := json.Unmarshal(job.Metadata, &m); err != nil {
		tb.Fatal(err)
	}
	return m.Snoozes
}

const hotWork = 20 * time.Millisecond

// crowd is what happened to the jobs of a hot account, and to those of others.
type crowd struct {
	hot, others   time.Duration // from the start until the last one was done
	overlaps      int
	snoozes, most int
	attempts      int // that were used up beyond the first one
}

// charge charges n jobs of one account and n of others, with ten workers.
func charge(t *testing.T, n int, guards func(*world, *river.Config) []rivertype.Middleware) (c crowd) {
	t.Helper()
	w := newWorld(t)
	var mu sync.Mutex
	var began time.Time
	inside, done := 0, 0
	all := make(chan struct{})
	cfg := config(10, charging(func(_ context.Context, job *river.Job[chargeArgs]) error {
		hot := job.Args.Account == "hot"
		mu.Lock()
		if hot {
			if inside++; inside > 1 {
				c.overlaps++
			}
		}
		mu.Unlock()
		time.Sleep(hotWork)
		mu.Lock()
		defer mu.Unlock()
		if hot {
			inside--
			c.hot = time.Since(began)
		} else {
			c.others = time.Since(began)
		}
		if done++; done == 2*n {
			close(all)
		}
		return nil
	}))
	if guards != nil {
		cfg.Middleware = guards(w, cfg)
	}
	client := w.newClient(cfg)
	var jobs []river.InsertManyParams
	for i := range 2 * n {
		a := chargeArgs{Account: "hot"}
		if i >= n {
			a.Account = fmt.Sprint("other", i)
		}
		jobs = append(jobs, river.InsertManyParams{Args: a})
	}
	if _, err := client.InsertManyFast(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	w.serve(cfg)
	select {
	case <-all:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%d of %d jobs are done", done, 2*n)
	}
	if err := w.client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := client.JobList(t.Context(), river.NewJobListParams().First(2*n))
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range rows.Jobs {
		if job.State != rivertype.JobStateCompleted {
			t.Errorf("job %d is %s", job.ID, job.State)
		}
		s := snoozes(t, job)
		c.snoozes += s
		c.most = max(c.most, s)
		c.attempts += job.Attempt - 1 + len(job.Errors)
	}
	return c
}

func parkedHot(w *world, cfg *river.Config) []rivertype.Middleware {
	return []rivertype.Middleware{
		rivermw.Wake[pgx.Tx](cfg),
		rivermw.Exclusive(w.locks, byAccount, rivermw.ExclusiveOptions{}),
	}
}

// 150 jobs of one account and 150 of others, 20 ms each, with 10 workers, next to the same jobs
// without a lock: the others take at most 1.2 times as long, the hot account at most 2 times its
// work, with at most 2 snoozes a job, and no attempt is used up.
// Shows: J3
func TestHotMarks(t *testing.T) {
	testlevel.Campaign(t)
	const n = 150
	free := charge(t, n, nil)
	c := charge(t, n, parkedHot)
	t.Logf("no lock: %+v", free)
	t.Logf("parked:  %+v", c)
	t.Logf("waiting: %+v", charge(t, n, func(w *world, cfg *river.Config) []rivertype.Middleware { return parkedHot(w, cfg)[1:] }))
	if c.others.Seconds() > 1.2*free.others.Seconds() {
		t.Errorf("the others took %v, and %v without a lock", c.others, free.others)
	}
	if work := n * hotWork; c.hot > 2*work {
		t.Errorf("the hot account took %v, its work %v", c.hot, work)
	}
	c.check(t, 2*n)
}

func (c crowd) check(t *testing.T, jobs int) {
	t.Helper()
	if c.overlaps != 0 || c.attempts != 0 || c.snoozes > 2*jobs {
		t.Errorf("%+v", c)
	}
}

// Jobs of one account and as many of others: all are done, those of the account one at a time, and
// no attempt is used up.
// Shows: J1, J3
func TestHot(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	charge(t, 40, parkedHot).check(t, 80)
}
