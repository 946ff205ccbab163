package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	memoryKeys  = 1_000_000        // the default of -keys
	memoryLease = 30 * time.Minute // so that no lease is renewed or expires in a run
	perKey      = time.Millisecond // a child may take this long for a key
	settleEvery = 250 * time.Millisecond
	settleReads = 6 // consecutive reads that differ by at most settleBytes
	settleMost  = 20 * time.Second
	settleBytes = 4 << 10
)

// memoryTask acquires all keys when the window opens, and releases them when it gets the word
// giveBack.
type memoryTask struct {
	holdTask
}

// warmUp opens the connections and loads the scripts, so that neither counts as memory of a key.
func (t *memoryTask) warmUp() error {
	t.leases = make([]held, t.job.Point.Workers)
	if t.take("before", 10*acquirers, func(_ int, h held) { _ = h.unlock(context.Background()) }) == 0 {
		return errNoLease
	}
	return nil
}

func (t *memoryTask) open() {
	t.taken = t.take("", len(t.leases), func(k int, h held) { t.leases[k] = h })
}

func (t *memoryTask) giveBack() error {
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range acquirers {
		all.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(t.leases); k = int(next.Add(1)) - 1 {
				if h := t.leases[k]; h != nil && h.unlock(context.Background()) != nil {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("bench: %d releases failed", n)
	}
	return nil
}

func (t *memoryTask) collect(o *outcome) {
	o.Unserved = int64(len(t.leases) - t.taken)
	runtime.KeepAlive(t.locker) // its connections stay open until the parent has read the memory
}

// measureMemory reads the memory of Redis before the keys are acquired, while they are held and
// after their release. The memory of connections does not count, because Redis resizes their
// buffers every few seconds.
func (r *report) measureMemory(ctx context.Context, srv *server, s scenario, progress io.Writer) error {
	for _, p := range s.points {
		for _, library := range r.options.librariesOf(s) {
			if err := srv.clean(ctx); err != nil {
				return err
			}
			cell, err := runMemory(ctx, srv, s, p, library)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				r.fail(library, err)
				fmt.Fprintln(progress, err)
			default:
				fmt.Fprintf(progress, "%s %s: %s bytes for each key held\n", s.name, library, number(cell.Figures[bytesPerKey]))
				r.cells = append(r.cells, cell)
			}
		}
	}
	return nil
}

func runMemory(ctx context.Context, srv *server, s scenario, p point, library string) (result, error) {
	prefix := "account:"
	if !srv.own {
		prefix = newPrefix(s)
	}
	children, err := startChildren(ctx, 1, job{Library: library, Addr: srv.addr, Prefix: prefix, Point: p})
	defer children.end()
	if err != nil {
		return result{}, err
	}
	var outcomes []*outcome
	var states []state
	for _, word := range []string{warmUp, measure, giveBack} {
		if _, err := children.allWithin(ctx, word, answerTime+time.Duration(p.Workers)*perKey); err != nil {
			return result{}, fmt.Errorf("%s, %s: %w", s.name, library, err)
		}
		now, err := srv.settled(ctx)
		if err != nil {
			return result{}, err
		}
		states = append(states, now)
	}
	if outcomes, err = children.all(ctx, finish); err != nil {
		return result{}, err
	}
	before, during, after := states[0], states[1], states[2]
	cell := newResult(s.name, p, library, outcomes, 0)
	cell.Figures[usedBefore], cell.Figures[usedHeld], cell.Figures[usedAfter] = before.used, during.used, after.used
	cell.Figures[keysHeld], cell.Figures[keysLeft] = during.keys-before.keys, after.keys-before.keys
	cell.Figures[bytesPerKey] = (during.used - before.used) / float64(p.Workers)
	cell.Figures[bytesLeft] = after.used - before.used
	return cell, nil
}

// state is a part of the replies to INFO and DBSIZE.
type state struct {
	used float64 // used_memory without the buffers of clients, in bytes
	keys float64 // of the first read
}

// settled waits until the memory no longer changes, because Redis shrinks its tables in the
// background.
func (s *server) settled(ctx context.Context) (state, error) {
	var st state
	keys, err := s.admin.DBSize(ctx).Result()
	if err != nil {
		return st, err
	}
	st.keys = float64(keys)
	same := 0
	for end := time.Now().Add(settleMost); same < settleReads && time.Now().Before(end); {
		info, err := s.info(ctx, "memory")
		if err != nil {
			return st, err
		}
		all, err1 := strconv.ParseFloat(info["used_memory"], 64)
		clients, err2 := strconv.ParseFloat(info["mem_clients_normal"], 64)
		if err := errors.Join(err1, err2); err != nil {
			return st, err
		}
		used := all - clients
		if same++; used < st.used-settleBytes || used > st.used+settleBytes {
			same, st.used = 0, used
		}
		if err := sleep(ctx, settleEvery); err != nil {
			return st, err
		}
	}
	return st, nil
}
