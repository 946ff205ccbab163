package plain_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/frameworks/plain"
	"github.com/holdfast-go/holdfast/locktest"
)

// Eight workers book 40 transfers of three accounts, one at a time for each account.
func TestWork(t *testing.T) {
	locks := locktest.New(t)
	var mu sync.Mutex
	inside, most, booked := map[int]int{}, 0, 0
	book := func(_ context.Context, job plain.Transfer) error {
		mu.Lock()
		inside[job.Account]++
		most, booked = max(most, inside[job.Account]), booked+job.Amount
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		inside[job.Account]--
		mu.Unlock()
		return nil
	}
	jobs := make(chan plain.Transfer)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			plain.Work(t.Context(), locks, jobs, book, func(_ plain.Transfer, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
	for i := range 40 {
		jobs <- plain.Transfer{Account: i % 3, Amount: 1}
	}
	close(jobs)
	workers.Wait()
	if booked != 40 || most != 1 {
		t.Errorf("booked %d, at most %d at once on one account", booked, most)
	}
}

// The first delivery fails. The broker delivers the message until it is acknowledged, and then
// twice more. Another body with the same ID is a dead letter.
func TestConsume(t *testing.T) {
	locks := locktest.New(t)
	var events []string
	runs := 0
	handle := func(_ context.Context, m plain.Message) error {
		runs++
		if runs == 1 {
			return errors.New("the database is away")
		}
		events = append(events, "handled "+m.ID)
		return nil
	}
	dead := func(m plain.Message, err error) {
		events = append(events, fmt.Sprint("dead letter ", m.Body, ": ", err))
	}
	for range 4 {
		events = append(events, fmt.Sprint(plain.Consume(t.Context(), locks, plain.Message{ID: "7", Body: "{}"}, handle, dead)))
	}
	events = append(events, fmt.Sprint(plain.Consume(t.Context(), locks, plain.Message{ID: "7", Body: "{other}"}, handle, dead)))
	got, want := fmt.Sprint(events), `[false handled 7 true true true dead letter {other}: lockcore: "order-created:7" is done with another fingerprint true]`
	if got != want || runs != 2 {
		t.Errorf("got %s after %d runs, want %s", got, runs, want)
	}
}
