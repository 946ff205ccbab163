package main

import (
	"context"
	"time"
)

// writeEvery is the time from the start of one write to the start of the next.
const writeEvery = 50 * time.Millisecond

// rwTask has readers of one key. Process 0 also has the writer.
type rwTask struct {
	*crew
	writer *worker // nil in the other processes
}

func newRWTask(j job, l *holdfastLocker, seen *witness) *rwTask {
	n := j.Point.workersOf(j.Process)
	if j.Process == 0 {
		n++
	}
	key, write := j.Prefix+"0", l.terms
	write.Limit = 0
	t, start := &rwTask{}, time.Now()
	t.crew = newCrew(n, seen, func(ctx context.Context, w *worker) error {
		terms := l.terms
		if w == t.writer {
			terms = write
			w.since.Store(0)
			time.Sleep(writeEvery - time.Since(start)%writeEvery)
			w.since.Store(time.Now().UnixNano())
		}
		lease, err := l.locks.Acquire(ctx, key, terms)
		if err != nil {
			return err
		}
		w.granted(1)
		w.inside(0, j.Point.Inside)
		return lease.Release(context.Background())
	})
	for _, w := range t.workers {
		w.limit = j.Point.Limit
	}
	if j.Process == 0 {
		t.writer = t.workers[n-1]
		t.writer.limit = 0
	}
	return t
}

// collect reports the waits of the writer separately. They are also part of all waits.
func (t *rwTask) collect(o *outcome) {
	var writes waits
	if t.writer != nil {
		if since := t.writer.since.Load(); since != 0 {
			writes.add(max(t.began.Add(t.window).Sub(time.Unix(0, since)), 0))
		}
	}
	t.crew.collect(o)
	if t.writer == nil {
		return
	}
	writes.mergeHistogram(&t.writer.waits)
	if len(writes.Counts) > 0 {
		o.Extra[writerP50US], o.Extra[writerP99US] = us(writes.quantile(0.5)), us(writes.quantile(0.99))
	}
	o.Extra[writesS] = float64(t.writer.ops) / o.Window.Seconds()
}
