package cronmw

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	settling  = 50 * time.Millisecond // after the moment at which something is expected at Redis
	offsetAge = time.Hour
)

// offset is by how much the clock of this instance is ahead of that of Redis, as it was not long ago.
type offset struct {
	mu    sync.Mutex
	ahead time.Duration
	asked time.Time
}

func (o *offset) get() (ahead time.Duration, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead, !o.asked.IsZero() && time.Since(o.asked) < offsetAge
}

func (o *offset) set(ahead time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead, o.asked = ahead, time.Now()
}

// early says how long it is, by the clock of Redis, until the time of a tick that another instance has; 0 or less: it has
// come. Until then that instance has not begun and may leave the tick to others. Redis is asked once an hour, by those
// that find a tick taken.
func (s *singleton) early(ctx context.Context, t Tick, busy *lockcore.BusyError) time.Duration {
	if busy.HeldFor > maxEarly {
		return 0
	}
	ahead, known := s.offset.get()
	if !known {
		asked := s.now() // before the answer: an instance whose clock is right is never early
		h, err := s.locks.Inspect(ctx, lockcore.KindOnce, t.Key())
		if err != nil || h.State != lockcore.StateHeld {
			return 0
		}
		ahead = asked.Sub(h.GrantedAt.Add(h.HeldFor))
		s.offset.set(ahead)
	}
	return ahead - s.now().Sub(t.Time)
}
