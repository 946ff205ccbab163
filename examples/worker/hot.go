package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

const (
	hotID         = 42 // the account that has many tasks
	hotTasks      = 40 // tasks of the hot account; the other accounts together have as many
	otherAccounts = 4
	charging      = 25 * time.Millisecond
	barWidth      = 60 // characters
)

// hotAccount enqueues many tasks of one account, mixed with those of others. Without parking the
// tasks of the hot account occupy all workers, and the other accounts wait although their keys are
// free. With parking at most a third of the workers wait, and the other tasks of the hot account
// are parked.
func hotAccount(ctx context.Context, s *stage) (row, error) {
	without, err := chargeAll(ctx, s, "without-parking")
	if err != nil {
		return row{}, err
	}
	with, err := chargeAll(ctx, s, "with-parking", asynqmw.Parking{Inspector: s.inspect})
	if err != nil {
		return row{}, err
	}
	end := max(without.end(), with.end())
	s.draw("without parking", without, end)
	s.draw("with parking", with, end)
	r := row{runs: with.count(hotID), most: with.most(hotID), state: "completed"}
	if with.hotBeforeOthers() >= without.hotBeforeOthers() {
		r.state = "the others waited"
	}
	return r, nil
}

// chargeAll processes the tasks of all accounts with 6 workers, and returns the time of each run.
func chargeAll(ctx context.Context, s *stage, name string, parking ...asynqmw.Parking) (runs, error) {
	locks, closeLocks, err := s.locker(nil)
	if err != nil {
		return nil, err
	}
	defer closeLocks()
	queue := s.queue(name)
	var ids []string
	for i := range hotTasks {
		for _, account := range []int{hotID, 1 + i%otherAccounts} {
			id := fmt.Sprintf("charge-%d", len(ids))
			if err := s.enqueue(queue, id, asynq.NewTask("charge", fmt.Appendf(nil, `{"account_id": %d}`, account))); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	var mu sync.Mutex
	var all runs
	began := time.Now()
	charge := func(_ context.Context, t *asynq.Task) error {
		r := run{from: time.Since(began)}
		time.Sleep(charging)
		r.to = time.Since(began)
		if _, err := fmt.Sscanf(string(t.Payload()), `{"account_id": %d}`, &r.account); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r)
		return nil
	}
	cfg := s.config(queue)
	cfg.Concurrency = 6
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	stop, err := s.serve(asynqmw.Configure(cfg, parking...), "charge", account(asynq.HandlerFunc(charge)))
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, err = s.ended(ctx, queue, id); err != nil {
			break
		}
	}
	stop()
	return all, err
}

// run is one run of a task of an account. runs are the runs of all accounts.
type (
	run struct {
		account  int
		from, to time.Duration
	}
	runs []run
)

func (rs runs) end() (last time.Duration) {
	for _, r := range rs {
		last = max(last, r.to)
	}
	return last
}

func (rs runs) count(account int) (n int) {
	for _, r := range rs {
		if r.account == account {
			n++
		}
	}
	return n
}

// most returns how many tasks of an account ran at once.
func (rs runs) most(account int) (most int) {
	for _, a := range rs {
		now := 0
		for _, b := range rs {
			if b.account == account && b.from <= a.from && a.from < b.to {
				now++
			}
		}
		most = max(most, now)
	}
	return most
}

// hotBeforeOthers returns how many tasks of the hot account ran before the last task of the others.
func (rs runs) hotBeforeOthers() (n int) {
	var last time.Duration
	for _, r := range rs {
		if r.account != hotID {
			last = max(last, r.from)
		}
	}
	for _, r := range rs {
		if r.account == hotID && r.from < last {
			n++
		}
	}
	return n
}

// draw prints a bar for each account: # where a task of it ran.
func (s *stage) draw(title string, rs runs, end time.Duration) {
	s.say("%s:", title)
	for account := range otherAccounts + 1 {
		name := fmt.Sprintf("account %d", account)
		if account == 0 {
			account, name = hotID, fmt.Sprintf("account %d (hot)", hotID)
		}
		bar := []byte(strings.Repeat(".", barWidth))
		for _, r := range rs {
			if r.account == account {
				for i := int(r.from * barWidth / end); i < barWidth && time.Duration(i)*end/barWidth < r.to; i++ {
					bar[i] = '#'
				}
			}
		}
		s.say("  %-16s %s", name, bar)
	}
}
