package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	maxParkedKeys = 4096
	// parkedGrace is the time that a parked task may need from the end of its delay to its next
	// event. asynq looks for due tasks every few seconds, and the task may wait for a worker.
	parkedGrace = 30 * time.Second
)

// parkedKeys has the last event about the parked tasks of each key. A process gets no event when
// another process runs a task. So the values of a key end when the tasks that this process parked
// must have come back. Until then the age of the oldest task stays that of the event. An age that
// grows would also show tasks that other processes have run.
//
// The events of a key may arrive in another order than the replies that they report. Then the
// values are wrong until the next event of the key, or until they end.
type parkedKeys struct {
	mu      sync.Mutex
	keys    map[parkedKey]parkedTasks
	classes map[*class]bool // that have had parked tasks
}

type parkedKey struct {
	class *class
	key   string
}

type parkedTasks struct {
	count  int
	oldest time.Duration
	end    time.Time // when these values are dropped
}

// record stores the values of an event. delay is that of the parked task, or 0.
func (p *parkedKeys) record(c *class, key string, count int, oldest, delay time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.classes[c] = true
	k := parkedKey{c, key}
	old, known := p.keys[k]
	if count == 0 {
		delete(p.keys, k)
		return
	}
	if !known && len(p.keys) >= maxParkedKeys { // observe makes room
		return
	}
	end := now.Add(delay + parkedGrace)
	if old.end.After(end) { // another task of the key comes back later
		end = old.end
	}
	p.keys[k] = parkedTasks{count, oldest, end}
}

// sums returns for each class the number of parked tasks and the greatest age. It removes the keys
// whose values have ended.
func (p *parkedKeys) sums() map[*class]parkedTasks {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := make(map[*class]parkedTasks, len(p.classes))
	for c := range p.classes {
		sums[c] = parkedTasks{}
	}
	for k, t := range p.keys {
		if !t.end.After(now) {
			delete(p.keys, k)
			continue
		}
		s := sums[k.class]
		sums[k.class] = parkedTasks{count: s.count + t.count, oldest: max(s.oldest, t.oldest)}
	}
	return sums
}

// observe makes the gauges of p.
func (p *parkedKeys) observe(m metric.Meter) error {
	tasks, errTasks := m.Int64ObservableGauge("holdfast.parked.tasks", metric.WithUnit("{task}"),
		metric.WithDescription("Parked tasks, by the last event of each key in this process"))
	oldest, errOldest := m.Float64ObservableGauge("holdfast.parked.oldest", metric.WithUnit("s"),
		metric.WithDescription("Time since the oldest parked task was parked for the first time, by the last event of its key"))
	if err := errtext.Join(errTasks, errOldest); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for c, s := range p.sums() {
			o.ObserveInt64(tasks, int64(s.count), c.both)
			o.ObserveFloat64(oldest, s.oldest.Seconds(), c.both)
		}
		return nil
	}, tasks, oldest)
	return err
}
