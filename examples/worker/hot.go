package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

const (
	hotID         = 42 // the account that has many tasks
	hotTasks      = 40 // tasks of the hot account; the other accounts together have as many
	otherAccounts = 4
	barWidth      = 60 // characters
)

// hotAccount charges all accounts without parking and with it, and draws both. The row counts only
// the runs of the hot account with parking.
func hotAccount(s *stage.Stage) func(context.Context) (row, error) {
	var tasks []*asynq.Task
	for i := range hotTasks {
		for _, account := range []int{hotID, 1 + i%otherAccounts} {
			tasks = append(tasks, asynq.NewTask("charge", fmt.Appendf(nil, `{"account_id": %d}`, account)))
		}
	}
	without := act{queue: "without-parking", tasks: tasks, together: true, silent: true}
	without.work = func(w *worker) (asynq.Config, asynq.Handler) { return chargeAll(w) }
	with := without
	with.queue = "with-parking"
	with.work = func(w *worker) (asynq.Config, asynq.Handler) {
		return chargeAll(w, asynqmw.Parking{Inspector: w.inspector})
	}
	return func(ctx context.Context) (row, error) {
		before, after := without.on(s), with.on(s)
		if _, err := before.play(ctx); err != nil {
			return row{}, err
		}
		r, err := after.play(ctx)
		if err != nil {
			return row{}, err
		}
		end := max(before.end(), after.end())
		before.draw("without parking", end)
		after.draw("with parking", end)
		if after.hotBeforeOthers() >= before.hotBeforeOthers() {
			r.state = "the others waited"
		}
		return r, nil
	}
}

// charge is one run of a task.
type charge struct {
	account  int
	from, to time.Duration
}

// charge is the handler of all accounts.
func (w *worker) charge(_ context.Context, t *asynq.Task) error {
	var payload struct {
		Account int `json:"account_id"`
	}
	if err := json.Unmarshal(t.Payload(), &payload); err != nil {
		return err
	}
	if payload.Account == hotID {
		w.enter()
		defer w.leave()
	}
	from := time.Since(w.began)
	time.Sleep(25 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.charges = append(w.charges, charge{payload.Account, from, time.Since(w.began)})
	return nil
}

func (s *scene) end() (last time.Duration) {
	for _, c := range s.charges {
		last = max(last, c.to)
	}
	return last
}

// hotBeforeOthers returns how many tasks of the hot account ran before the last task of the others.
func (s *scene) hotBeforeOthers() (n int) {
	var last time.Duration
	for _, c := range s.charges {
		if c.account != hotID {
			last = max(last, c.from)
		}
	}
	for _, c := range s.charges {
		if c.account == hotID && c.from < last {
			n++
		}
	}
	return n
}

// draw prints a bar for each account: # where a task of it ran.
func (s *scene) draw(title string, end time.Duration) {
	s.stage.Say("%s:", title)
	for account := range otherAccounts + 1 {
		name := fmt.Sprintf("account %d", account)
		if account == 0 {
			account, name = hotID, fmt.Sprintf("account %d (hot)", hotID)
		}
		bar := []byte(strings.Repeat(".", barWidth))
		for _, c := range s.charges {
			if c.account == account {
				for i := int(c.from * barWidth / end); i < barWidth && time.Duration(i)*end/barWidth < c.to; i++ {
					bar[i] = '#'
				}
			}
		}
		s.stage.Say("  %-16s %s", name, bar)
	}
}
