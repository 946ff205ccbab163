package cronmw

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	settling  = 50 * time.Millisecond // added to the time until an expected change in Redis
	offsetAge = time.Hour             // for which a measured offset is used
)

// offset is the last measured difference between the clock of this instance and that of Redis.
type offset struct {
	mu       sync.Mutex
	ahead    time.Duration
	measured time.Time
}

func (o *offset) get() (ahead time.Duration, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead, !o.measured.IsZero() && time.Since(o.measured) < offsetAge
}

func (o *offset) set(ahead time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead, o.measured = ahead, time.Now()
}

// early returns the time, by the clock of Redis, until the time of a tick that another instance
// holds. With 0 or less the tick's time has come. Until then that instance has not begun fn, and
// may leave the tick to others. The offset is measured at most once an hour, and only by an
// instance that finds a tick taken.
func (s *singleton) early(ctx context.Context, t Tick, busy *lockcore.BusyError) time.Duration {
	if busy.HeldFor > maxEarly {
		return 0
	}
	ahead, known := s.offset.get()
	if !known {
		sent := s.now() // before the request, so an instance whose clock is right is never early
		h, err := s.locks.Inspect(ctx, event.KindOnce, t.Key())
		if err != nil || h.State != lockcore.StateHeld {
			return 0
		}
		ahead = sent.Sub(h.GrantedAt.Add(h.HeldFor))
		s.offset.set(ahead)
	}
	return ahead - s.now().Sub(t.Time)
}
