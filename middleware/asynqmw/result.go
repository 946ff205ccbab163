package asynqmw

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"
)

// SetResult stores a copy of b as the result of the task of ctx. It writes b to this task's
// ResultWriter at once, where asynq's Inspector finds it. When the handler returns nil, b becomes
// part of the record of the Once around it, and a duplicate or a retry gets b from there. A later
// call replaces b.
//
// After asynq has given up on the task, b is only part of the record. That is not an error, because
// the retry writes it to asynq. SetResult returns an error in these cases:
//
//   - ctx is not from a handler under Once.
//   - That handler has returned.
//   - Redis did not accept the result. The record still gets it.
func SetResult(ctx context.Context, b []byte) error {
	r, _ := ctx.Value(resultKey{}).(*result)
	if r == nil {
		return errors.New("asynqmw: SetResult: ctx is not from a handler under Once")
	}
	if !r.set(b) {
		return errors.New("asynqmw: SetResult: the handler has returned")
	}
	return write(r.writer, b)
}

// Key returns the key under which the innermost [Once] guards the task of ctx, such as
// charge/payment:7, or "" outside of a Once. It is the same in every run of the work. So you can
// pass it downstream as an idempotency key, or store it in the transaction of the effect. It is
// also the key for guard.Token, guard.Attempt, guard.Ticket and idempotency.Clear.
//
// Under [Exclusive], [ExclusiveAll], [Shared] and [Limited] alone Key returns "", because their
// keys do not name the work: two charges of one account are not the same charge. [guard.Current]
// returns the key of the innermost hold of any kind.
func Key(ctx context.Context) string {
	if r, _ := ctx.Value(resultKey{}).(*result); r != nil {
		return r.key
	}
	return ""
}

type resultKey struct{}

// result is the result of one run under Once, for its record.
type result struct {
	writer *asynq.ResultWriter
	outer  *result // of a Once around this one: its record needs the result too
	key    string  // of the innermost Once, see Key

	mu    sync.Mutex
	data  []byte
	taken bool
}

// newResult returns the result of a run of t, and the result of the enclosing Once, if any.
func newResult(ctx context.Context, t *asynq.Task) (r, outer *result) {
	outer, _ = ctx.Value(resultKey{}).(*result)
	r = &result{writer: t.ResultWriter(), outer: outer}
	if outer != nil {
		r.key = outer.key // unless this Once has a key
	}
	return r, outer
}

func (r *result) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, resultKey{}, r)
}

// set stores a copy of b in r and in the results of the Onces around it. It returns false if the
// run of one of them has ended. A nil r stores nothing.
func (r *result) set(b []byte) bool {
	for b = bytes.Clone(b); r != nil; r = r.outer {
		r.mu.Lock()
		taken := r.taken
		if !taken {
			r.data = b
		}
		r.mu.Unlock()
		if taken {
			return false
		}
	}
	return true
}

func (r *result) take() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = true
	return r.data
}

// replay writes b, the recorded result of an earlier run, as the result of t.
func replay(t *asynq.Task, outer *result, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	outer.set(b)
	return write(t.ResultWriter(), b)
}

// write writes b to w. If asynq has given up on the task, the ResultWriter returns the error of the
// task's ctx, which write ignores.
func write(w *asynq.ResultWriter, b []byte) error {
	if w == nil {
		return nil // the task is not from a server: a test calls the handler
	}
	_, err := w.Write(b)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
