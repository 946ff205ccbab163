package signals_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	recovery = 250 * time.Millisecond  // how long after its lease a dead holder's key is acquired
	unheard  = 2500 * time.Millisecond // the delay that a message costs if no process receives it
)

func TestMain(m *testing.M) { chaos.Main(m, work) }

// place is a server with two Lockers of the test process. They take over the keys that workers
// leave.
type place struct {
	*testing.T
	server *redistest.Server
	rdb    *redis.Client
	locks  [2]*lockcore.Locker

	mu   sync.Mutex
	late []lateness
}

// lateness is the delay of the machine at a moment. Time limits do not apply then.
type lateness struct {
	at int64
	by time.Duration
}

func newPlace(t *testing.T) *place {
	t.Helper()
	s := redistest.Real(t)
	p := &place{T: t, server: s, rdb: s.Client(t)}
	for i := range p.locks {
		p.locks[i] = chaos.Locker(t, s.Client(t), lockcore.Options{Terms: lockcore.Terms{Lease: lease, Wait: patience}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.watch(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// watch notes when a short sleep and a PING take too long. From time to time it looks at all keys.
func (p *place) watch(ctx context.Context) {
	const moment, usual = 10 * time.Millisecond, 20 * time.Millisecond
	for i := 0; ctx.Err() == nil; i++ {
		if i%20 == 0 {
			chaos.CheckTTLs(p, p.rdb)
		}
		start := time.Now()
		time.Sleep(moment)
		_ = p.rdb.Ping(ctx).Err()
		if took := time.Since(start); took > usual {
			p.mu.Lock()
			p.late = append(p.late, lateness{chaos.Now(), took - moment})
			p.mu.Unlock()
		}
	}
}

// lateBetween returns the greatest delay of the machine between from and to.
func (p *place) lateBetween(from, to int64) (by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.late {
		if l.at >= from && l.at-int64(l.by) <= to {
			by = max(by, l.by)
		}
	}
	return by
}

// task is one for a worker of this place.
func (p *place) task(t task) task {
	t.Addr = p.server.Addr()
	return t
}

// turn is a hold of the test process. It increments the register, so that the register knows its
// token, waits in stay, and increments the register again. Neither increment may be refused.
func (p *place) turn(locks *lockcore.Locker, key string, reg *chaos.Register, stay func()) (granted int64, abandoned bool, err error) {
	le, err := locks.Acquire(context.Background(), key, lockcore.Terms{})
	if err != nil {
		return 0, false, err
	}
	granted = chaos.Now()
	taken := reg.Write(le.Token(), "test", reg.Value()+1)
	value := reg.Value()
	stay()
	if !reg.Write(le.Token(), "test", value+1) || !taken {
		err = errors.New("a write of a holder that was never stopped was refused")
	}
	return granted, le.Abandoned(), errors.Join(err, le.Release(context.Background()))
}
