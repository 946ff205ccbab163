package signals_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	recovery = 250 * time.Millisecond  // how long after its lease a dead holder's key is taken
	unheard  = 2500 * time.Millisecond // what a message costs that nobody hears
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(work())
	}
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// place is a server with two Lockers of the test's own process, which is neither stopped nor killed: what workers leave is theirs.
type place struct {
	*testing.T
	server *redistest.Server
	rdb    *redis.Client
	locks  [2]*lockcore.Locker

	mu   sync.Mutex
	late []lateness
}

// lateness says by how much the machine was late at that moment: nobody can keep a time then.
type lateness struct {
	at int64
	by time.Duration
}

func newPlace(t *testing.T) *place {
	t.Helper()
	s := redistest.Real(t)
	p := &place{T: t, server: s, rdb: s.Client(t)}
	for i := range p.locks {
		locks, err := lockcore.New(s.Client(t), lockcore.Options{Terms: lockcore.Terms{Lease: lease, Wait: patience}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := locks.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		p.locks[i] = locks
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

// watch notes when a moment's sleep and a PING take longer than they should. Every so often it looks at all keys.
func (p *place) watch(ctx context.Context) {
	const moment, usual = 10 * time.Millisecond, 20 * time.Millisecond
	for i := 0; ctx.Err() == nil; i++ {
		if i%20 == 0 {
			p.checkTTLs(ctx)
		}
		start := time.Now()
		time.Sleep(moment)
		_ = p.rdb.Ping(ctx).Err()
		if took := time.Since(start); took > usual {
			p.mu.Lock()
			p.late = append(p.late, lateness{now(), took - moment})
			p.mu.Unlock()
		}
	}
}

// lateBetween is by how much the machine was late then, at worst.
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

// checkTTLs: every key has a TTL, at any moment.
func (p *place) checkTTLs(ctx context.Context) {
	for _, key := range p.rdb.Keys(ctx, "holdfast:*").Val() {
		if p.rdb.PTTL(ctx, key).Val() == -1 {
			p.Errorf("%s has no TTL", key)
		}
	}
}

// checkLeftovers: nobody stands in line, and nobody has anything, once what was reserved for the dead is over.
func (p *place) checkLeftovers() {
	p.Helper()
	ctx := context.Background()
	p.checkTTLs(ctx)
	all, err := p.rdb.Keys(ctx, "holdfast:*").Result()
	if err != nil {
		p.Error(err)
	}
	for _, key := range all {
		kind := lockcore.KindExclusive
		if strings.HasPrefix(key, "holdfast:2:o:") {
			kind = lockcore.KindOnce
		}
		name := key[strings.Index(key, "{")+1 : strings.Index(key, "}")]
		var h lockcore.Holding
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			h, err = p.locks[0].Inspect(ctx, kind, name)
			if err != nil || h.State != lockcore.StateReserved {
				break
			}
		}
		if err != nil || h.Queue > 0 || h.State != lockcore.StateFree && h.State != lockcore.StateDone {
			p.Errorf("%s is left %s, with %d in line: %v", name, h.State, h.Queue, err)
		}
	}
}

// turn is a hold of the test's own process: it makes an increment, so that the register knows its token, stays, and makes another one. None
// may be refused.
func (p *place) turn(locks *lockcore.Locker, key string, reg *register, stay func()) (granted int64, abandoned bool, err error) {
	le, err := locks.Acquire(context.Background(), key, lockcore.Terms{})
	if err != nil {
		return 0, false, err
	}
	granted = now()
	taken := reg.write(le.Token(), "test", reg.read()+1)
	value := reg.read()
	stay()
	if !reg.write(le.Token(), "test", value+1) || !taken {
		err = errors.New("a write of a holder that was never stopped was refused")
	}
	return granted, le.Abandoned(), errors.Join(err, le.Release(context.Background()))
}
