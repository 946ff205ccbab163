package memory

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

const listBatch = 100 // keys that List inspects before it yields them

// List implements backend.Backend. A key that exists during the whole call is yielded once.
func (b *Backend) List(ctx context.Context, r backend.ListRequest) iter.Seq2[backend.ListEntry, error] {
	return func(yield func(backend.ListEntry, error) bool) {
		keys, err := b.matching(r)
		for some := range slices.Chunk(keys, listBatch) {
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				break
			}
			var entries []backend.ListEntry
			entries, err = b.entries(some, r)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(backend.ListEntry{}, err)
		}
	}
}

// matching returns the keys that List must inspect.
func (b *Backend) matching(r backend.ListRequest) ([]backend.Key, error) {
	if r.Kind != 0 && r.Kind != backend.KindExclusive && r.Kind != backend.KindOnce {
		return nil, fmt.Errorf("lockcore: ListRequest.Kind is %d, must be KindExclusive, KindOnce or 0", r.Kind)
	}
	matches := rules.Matching(r.Match)
	s := b.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.isClosed() {
		return nil, backend.ErrClosed
	}
	var keys []backend.Key
	for _, e := range s.keys {
		if (r.Kind == 0 || e.of.Kind == r.Kind) && matches(e.of.Name) {
			keys = append(keys, e.of)
		}
	}
	return keys, nil
}

// entries inspects keys, and skips those that r does not select.
func (b *Backend) entries(keys []backend.Key, r backend.ListRequest) (entries []backend.ListEntry, err error) {
	part := backend.NoRecord
	if r.RecordHeads {
		part = backend.RecordHead
	}
	for i := range keys {
		s, err := b.Inspect(context.Background(), &keys[i], part)
		if err != nil {
			return entries, err
		}
		if r.Selects(&s) {
			entries = append(entries, backend.ListEntry{Kind: keys[i].Kind, Name: keys[i].Name, Status: s})
		}
	}
	return entries, nil
}
