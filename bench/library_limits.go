package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// semaphoreLocker has a semaphore of weight 1 for each key and uses no Redis. It shows how fast the
// goroutines of one process can pass a key on.
type semaphoreLocker struct{ keys sync.Map }

func openSemaphore(setup) (locker, error) { return &semaphoreLocker{}, nil }

func (l *semaphoreLocker) lock(ctx context.Context, key string) (held, error) {
	v, ok := l.keys.Load(key)
	if !ok {
		v, _ = l.keys.LoadOrStore(key, semaphore.NewWeighted(1))
	}
	h := semaphoreHeld{v.(*semaphore.Weighted)} //nolint:errcheck // nothing else is stored
	return h, h.Acquire(ctx, 1)
}

type semaphoreHeld struct{ *semaphore.Weighted }

func (h semaphoreHeld) unlock(context.Context) error {
	h.Release(1)
	return nil
}

// The model ends a batch of hand-offs as lockcore does.
const (
	modelHandOffs = 512
	modelBatch    = 5 * time.Millisecond
)

// model is the minimum of holdfast's design, without its other features. A process holds the lock
// in Redis. Its callers wait in FIFO order, and hand the key off without a command. Each caller has
// a token, and a ctx that ends with the lease. model shows the cost of the design itself.
type model struct {
	floor

	mu   sync.Mutex
	keys map[string]*modelKey
}

// modelKey is a key in this process. mu guards its fields and those of the hold.
type modelKey struct {
	mu      sync.Mutex
	busy    bool // a caller of this process has the key, or gets it from Redis
	waiters []*modelHold

	token    int64
	handOffs int
	inRedis  held
	since    time.Time // of the grant in Redis
	until    time.Time // the end of the lease, which renew moves
}

// modelHold is a call of lock, and the hold after the call is granted.
type modelHold struct {
	key    *modelKey
	turn   chan bool // true: the hold has begun; false: get the key from Redis
	token  int64
	ctx    context.Context //nolint:containedctx // the handler's
	cancel context.CancelFunc
}

func openModel(s setup) (locker, error) {
	m := &model{floor: newFloor(s, newClient(s)), keys: map[string]*modelKey{}}
	go m.renew() // ends with the process
	return m, nil
}

func (m *model) lock(ctx context.Context, key string) (held, error) {
	k := m.keyNamed(key)
	h := &modelHold{key: k}
	k.mu.Lock()
	if k.busy {
		h.turn = make(chan bool, 1)
		k.waiters = append(k.waiters, h)
		k.mu.Unlock()
		begun, err := h.wait(ctx)
		if begun || err != nil {
			return h, err
		}
		k.mu.Lock()
	}
	k.busy = true
	k.mu.Unlock()
	inRedis, err := m.floor.lock(ctx, key)
	if err != nil {
		k.passOn()
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inRedis, k.handOffs, k.since = inRedis, 0, time.Now()
	k.until = k.since.Add(floorLease)
	h.begin()
	return h, nil
}

func (m *model) keyNamed(key string) *modelKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[key]
	if k == nil {
		k = &modelKey{}
		m.keys[key] = k
	}
	return k
}

// wait returns when the caller gets its turn, or with an error when ctx ends. If both race, mu of
// the key decides.
func (h *modelHold) wait(ctx context.Context) (begun bool, err error) {
	select {
	case begun = <-h.turn:
		return begun, nil
	case <-ctx.Done():
	}
	k := h.key
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.Index(k.waiters, h); i >= 0 {
		k.waiters = slices.Delete(k.waiters, i, i+1)
		return false, ctx.Err()
	}
	return <-h.turn, nil
}

// begin is called under mu of the key.
func (h *modelHold) begin() {
	h.key.token++
	h.token = h.key.token
	h.ctx, h.cancel = context.WithDeadline(context.Background(), h.key.until)
}

func (h *modelHold) unlock(ctx context.Context) error {
	h.cancel()
	k := h.key
	k.mu.Lock()
	if k.handOffs < modelHandOffs-1 && time.Since(k.since) < modelBatch {
		if next := k.nextWaiter(); next != nil {
			k.handOffs++
			next.begin()
			k.mu.Unlock()
			next.turn <- true
			return nil
		}
	}
	inRedis := k.inRedis
	k.inRedis = nil
	k.mu.Unlock()
	err := inRedis.unlock(ctx)
	k.passOn()
	return err
}

// passOn makes the next waiter acquire the key in Redis. If no caller waits, the next caller does.
func (k *modelKey) passOn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if next := k.nextWaiter(); next != nil {
		next.turn <- false
		return
	}
	k.busy = false
}

// nextWaiter is called under mu.
func (k *modelKey) nextWaiter() *modelHold {
	if len(k.waiters) == 0 {
		return nil
	}
	next := k.waiters[0]
	k.waiters = k.waiters[1:]
	return next
}

// renew extends the locks of all held keys.
func (m *model) renew() {
	for range time.Tick(floorLease / 3) {
		m.mu.Lock()
		for name, k := range m.keys {
			k.mu.Lock()
			if k.inRedis != nil && m.rdb.PExpire(context.Background(), name, floorLease).Val() {
				k.until = time.Now().Add(floorLease)
			}
			k.mu.Unlock()
		}
		m.mu.Unlock()
	}
}
