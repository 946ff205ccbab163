package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// List implements backend.Backend. It reads the names in pages, and then the rows of those that match.
// The error of a row that cannot be read comes after all keys.
func (b *Backend) List(ctx context.Context, r backend.ListRequest) iter.Seq2[backend.ListEntry, error] {
	return func(yield func(backend.ListEntry, error) bool) {
		if r.Kind != 0 && r.Kind != backend.KindExclusive && r.Kind != backend.KindOnce {
			yield(backend.ListEntry{}, fmt.Errorf("lockcore: ListRequest.Kind is %d, must be KindExclusive, KindOnce or 0", r.Kind))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.base, cancel)()
		matches := rules.Matching(r.Match)
		var unreadable error
		err := pages(ctx, b.calls.Names, r.Pause, func(names []string) error {
			entries, bad, err := b.entries(ctx, slices.DeleteFunc(names, func(name string) bool {
				if !ours(name) {
					return true
				}
				k := keyOf(name)
				return r.Kind != 0 && k.Kind != r.Kind || !matches(k.Name)
			}), r)
			for _, e := range entries {
				if !yield(e, nil) {
					return errStop
				}
			}
			if unreadable == nil {
				unreadable = bad
			}
			return err
		})
		if err = cmp.Or(b.closedOr(err), unreadable); err != nil && !errors.Is(err, errStop) {
			yield(backend.ListEntry{}, err)
		}
	}
}

var errStop = errors.New("stop")

// pages calls do with pages of names until none is left.
func pages(ctx context.Context, next func(context.Context, string) ([]string, error), pause time.Duration, do func([]string) error) error {
	for after := ""; ; {
		names, err := next(ctx, after)
		if err != nil || len(names) == 0 {
			return err
		}
		after = names[len(names)-1]
		for some := range slices.Chunk(names, MaxBatch) {
			if err := do(some); err != nil {
				return err
			}
			if pause > 0 && !backend.Sleep(ctx, pause) {
				return context.Cause(ctx)
			}
		}
	}
}

// entries returns the entries of the rows that r selects. It leaves out those that cannot be read, of
// which bad names the first.
func (b *Backend) entries(ctx context.Context, names []string, r backend.ListRequest) (entries []backend.ListEntry, bad, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	part := backend.NoRecord
	if r.RecordHeads {
		part = backend.RecordHead
	}
	rows, err := b.calls.Read(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		of := keyOf(names[i])
		k, _, err := rows[i].decode(of.Kind)
		if err != nil {
			if bad == nil {
				bad = &backend.DataError{Stored: names[i], Row: true, Reply: err}
			}
			continue
		}
		if _, s := rules.Inspect(k, of.Kind, part, rules.Env{Now: rows[i].Now, Locker: b.o.Locker}); r.Selects(&s) {
			entries = append(entries, backend.ListEntry{Kind: of.Kind, Name: of.Name, Status: s})
		}
	}
	return entries, bad, nil
}

// Purge deletes the rows that have been free for an hour, and returns how many. Only ctx bounds its time.
func Purge(ctx context.Context, s Store) (deleted int64, err error) {
	err = pages(ctx, s.Due, 0, func(names []string) error {
		if names = slices.DeleteFunc(names, func(name string) bool { return !ours(name) }); len(names) == 0 {
			return nil
		}
		rows, err := s.Read(ctx, names)
		if err != nil {
			return err
		}
		var writes []Write
		for i := range rows {
			of := keyOf(names[i])
			k, last, err := rows[i].decode(of.Kind)
			if err != nil || rows[i].Version == 0 || rows[i].Due > rows[i].Now/Hour { // another client has changed it
				continue
			}
			w := write(names[i], &rows[i], encode(of.Kind, &k, last, rows[i].Now), false)
			w.Delete = k.Gone() //planted:rows-purged
			writes = append(writes, *w)
		}
		for i, err := range s.Write(ctx, writes) {
			switch {
			case err == nil && writes[i].Delete:
				deleted++
			case err != nil && !errors.Is(err, ErrConflict):
				return err
			}
		}
		return nil
	})
	return deleted, err
}
