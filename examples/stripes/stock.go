package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	tries     = 3                      // the number of segments that an order tries before it waits for one
	orderTime = 200 * time.Millisecond // the time an order holds its segment, such as for a payment
)

var (
	errEmpty   = errors.New("the segment is empty")
	errSoldOut = errors.New("sold out")
	errStale   = errors.New("a newer hold has written to the segment")
)

// table is the stock in segments. It replaces a table of a database:
//
//	CREATE TABLE stock (segment INT PRIMARY KEY, units INT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)
//
// take replaces this statement. It changes no row if the segment is empty, or if a hold with a
// greater token has written to it:
//
//	UPDATE stock SET units = units - 1, fence = :token WHERE segment = :segment AND units > 0 AND fence <= :token
type table struct {
	mu   sync.Mutex // guards rows
	rows []row
}

type row struct {
	units int
	fence int64
}

func newTable(segments, units int) *table {
	return &table{rows: slices.Repeat([]row{{units: units}}, segments)}
}

func (t *table) take(segment int, token int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r := &t.rows[segment]; {
	case r.fence > token:
		return errStale
	case r.units == 0:
		return errEmpty
	default:
		r.units--
		r.fence = token
		return nil
	}
}

// units returns how many units are left.
func (t *table) units() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		n += r.units
	}
	return n
}

// shop sells the stock. Each segment has a separate key, so orders of different segments run at the
// same time.
type shop struct {
	locks *lockcore.Locker
	stock *table
}

// order takes one unit of any segment. It begins with a random segment and tries the first few
// without a wait. If all of these are busy, it waits for the first one. If a segment is empty, it
// tries the next one. It tries each segment at most once with a wait.
func (s *shop) order(ctx context.Context) error {
	n := len(s.stock.rows)
	first := rand.N(n)
	empty := 0 // the number of segments, from the first one on, that are known to be empty
	for i := range min(tries, n) {
		err := s.orderFrom(ctx, (first+i)%n, lockcore.NoWait)
		switch {
		case errors.Is(err, errEmpty) && empty == i:
			empty++
		case !errors.Is(err, errEmpty) && !errors.Is(err, lockcore.ErrBusy):
			return err
		}
	}
	for i := empty; i < n; i++ {
		if err := s.orderFrom(ctx, (first+i)%n, time.Minute); !errors.Is(err, errEmpty) {
			return err
		}
	}
	return errSoldOut
}

// orderFrom takes one unit of a segment while it holds the key of the segment.
func (s *shop) orderFrom(ctx context.Context, segment int, wait time.Duration) error {
	key := fmt.Sprint("stock:", segment)
	return guard.Exclusive(ctx, s.locks, key, lockcore.Terms{Name: "stock", Wait: wait}, func(ctx context.Context) error {
		token, _ := guard.Token(ctx, key)
		if err := s.stock.take(segment, token); err != nil {
			return err
		}
		return stage.Sleep(ctx, orderTime) // the rest of the order
	})
}
