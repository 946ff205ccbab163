package asynqmw

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"
)

// SetResult stores b as the result of the task that ctx belongs to: in the record of the Once around the handler, from
// where a duplicate or a retry gets it, and through this task's ResultWriter, where asynq's Inspector finds it. A later
// call replaces it. The record is stored when the handler returns nil.
//
// After asynq has given the task up only the record is kept, which is no error: the retry hands it to asynq. SetResult
// returns an error if ctx is not from a handler under Once, if that handler has returned, or if Redis did not take the
// result; in the last case the record has it all the same.
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

type resultKey struct{}

// result is what one run under Once will leave in its record.
type result struct {
	writer *asynq.ResultWriter
	outer  *result // of a Once around this one: its record needs the result too

	mu    sync.Mutex
	data  []byte
	taken bool
}

// newResult returns the result of a run of t and that of the Once around it, if any.
func newResult(ctx context.Context, t *asynq.Task) (r, outer *result) {
	outer, _ = ctx.Value(resultKey{}).(*result)
	return &result{writer: t.ResultWriter(), outer: outer}, outer
}

func (r *result) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, resultKey{}, r)
}

// set keeps a copy of b here and in the results around; false if the run is over. A nil r has nothing to keep.
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

// replay gives a task the result of the run that did its work.
func replay(t *asynq.Task, outer *result, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	outer.set(b)
	return write(t.ResultWriter(), b)
}

// write ignores that asynq has given the task up, which its ResultWriter answers with the error of the task's ctx.
func write(w *asynq.ResultWriter, b []byte) error {
	if w == nil {
		return nil // not from a server: a test that calls the handler itself
	}
	_, err := w.Write(b)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
