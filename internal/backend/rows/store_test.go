package rows_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// table is a table in memory.
type table struct {
	mu        sync.Mutex
	rows      map[string]rows.Row
	listeners map[string][]chan backend.Notification
	ahead     rules.Span // added to the clock

	conflicts bool // half of the writes find that the row has changed
	ruleOnly  bool // Grant, Free and Finish do nothing
	rnd       *rand.Rand
	before    func(method string) error // called before each statement, not under mu
	after     func(method string) error // called after it: the error of a lost reply
	writes    []rows.Write              // all that took effect
}

func newTable() *table {
	return &table{rows: map[string]rows.Row{}, listeners: map[string][]chan backend.Notification{}, rnd: rand.New(rand.NewPCG(1, 2))}
}

// statements counts the statements from now on.
func (t *table) statements() map[string]int {
	n := map[string]int{}
	t.hook(func(method string) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		n[method]++
		return nil
	}, nil)
	return n
}

func (t *table) hook(before, after func(method string) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before, t.after = before, after
}

func (t *table) setBack(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ahead -= d.Microseconds()
}

func (t *table) now() rules.Instant { return time.Now().UnixMicro() + t.ahead }

// store is a rows.Store on a table.
type store struct{ *table }

var errLost = errors.New("no reply")

// do runs a statement between the hooks.
func (s store) do(ctx context.Context, method string, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(method); err != nil {
			return err
		}
	}
	s.mu.Lock()
	f()
	s.mu.Unlock()
	if after != nil {
		return after(method)
	}
	return nil
}

func (s store) Read(ctx context.Context, names []string) (all []rows.Row, err error) {
	err = s.do(ctx, "Read", func() {
		for _, name := range names {
			r := s.rows[name]
			r.Now = s.now()
			all = append(all, r)
		}
	})
	return all, err
}

func (s store) Listening(ctx context.Context) (all map[string]int, err error) {
	err = s.do(ctx, "Listening", func() {
		all = map[string]int{}
		for locker, ls := range s.listeners {
			all[locker] = len(ls)
		}
	})
	return all, err
}

func (s store) Write(ctx context.Context, ws []rows.Write) []error {
	errs := make([]error, len(ws))
	err := s.do(ctx, "Write", func() {
		for i, w := range ws {
			if s.conflicts && s.rnd.IntN(2) == 0 || s.rows[w.Name].Version != w.Was || s.now() >= w.Read+rows.WriteTime {
				errs[i] = rows.ErrConflict
				continue
			}
			s.writes = append(s.writes, w)
			if w.Delete {
				delete(s.rows, w.Name)
				continue
			}
			w.Row.Due = max(w.Row.Due, s.rows[w.Name].Due)
			s.rows[w.Name] = w.Row
		}
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (s store) Grant(ctx context.Context, g rows.Grant) (token int64, granted bool, err error) {
	if s.ruleOnly {
		return 0, false, nil
	}
	err = s.do(ctx, "Grant", func() {
		r, now := s.rows[g.Name], s.now()
		if granted = r.Owner == "" && r.Data == nil; !granted {
			return
		}
		token = max(r.Token+1, now)
		s.rows[g.Name] = rows.Row{
			Version: s.rnd.Int64(), Owner: g.Owner, Locker: g.Locker, Holder: g.Holder, Fingerprint: g.Fingerprint,
			End: now + g.Lease, Length: g.Lease, Expires: now + g.Retention, Token: token, Due: max(r.Due, (now+g.Retention)/rows.Hour+2),
		}
	})
	return token, granted, err
}

func (s store) end(ctx context.Context, method, name, owner string, f func(*rows.Row)) (ended bool, err error) {
	if s.ruleOnly {
		return false, nil
	}
	err = s.do(ctx, method, func() {
		if r := s.rows[name]; r.Owner == owner && r.Expires > s.now() {
			ended = true
			r.Version, r.Owner, r.Locker, r.End, r.Length = s.rnd.Int64(), "", "", 0, 0
			f(&r)
			s.rows[name] = r
		}
	})
	return ended, err
}

func (s store) Free(ctx context.Context, name, owner string, token int64) (bool, error) {
	return s.end(ctx, "Free", name, owner, func(r *rows.Row) {
		r.Holder, r.Fingerprint, r.Expires, r.Token = "", "", 0, max(r.Token, token)
	})
}

func (s store) Finish(ctx context.Context, name, owner string, data []byte, keep rules.Span) (bool, error) {
	return s.end(ctx, "Finish", name, owner, func(r *rows.Row) {
		r.Data, r.Expires = data, s.now()+keep
		r.Due = max(r.Due, r.Expires/rows.Hour+2)
	})
}

func (s store) page(after string, ok func(rows.Row) bool) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.rows {
		if name > after && ok(r) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), rows.NamesPerPage)]
}

func (s store) Names(_ context.Context, after string) ([]string, error) {
	return s.page(after, func(rows.Row) bool { return true }), nil
}

func (s store) Due(_ context.Context, after string) ([]string, error) {
	return s.page(after, func(r rows.Row) bool { return r.Due <= s.now()/rows.Hour }), nil
}

func (s store) Notify(_ context.Context, notices []rules.Notice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notices {
		for _, ch := range s.listeners[n.Locker] {
			ch <- n.Notification
		}
	}
	return nil
}

func (s store) Listen(ctx context.Context, locker string, on func(backend.Notification)) {
	ch := make(chan backend.Notification, 1000)
	s.mu.Lock()
	s.listeners[locker] = append(s.listeners[locker], ch)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners[locker] = slices.DeleteFunc(s.listeners[locker], func(o chan backend.Notification) bool { return o == ch })
	}()
	on(backend.Notification{Event: backend.EventSubscribed})
	for {
		select {
		case n := <-ch:
			on(n)
		case <-ctx.Done():
			return
		}
	}
}

func (s store) Permanent(error) bool         { return false }
func (s store) MayTakeEffect(err error) bool { return errors.Is(err, errLost) }
func (s store) Close()                       {}

func (t *table) backend(locker string) *rows.Backend {
	return rows.New(rows.Options{
		Options: backend.Options{Locker: locker, Closing: make(chan struct{}), CleanupsFailed: func(int, error) {}}, Name: "rows", Calls: store{t}, Ends: store{t},
	})
}

func (t *table) world(*testing.T) backendtest.World {
	return backendtest.World{Backend: func(locker string) backend.Backend { return t.backend(locker) }}
}

// The backend on rows conforms: with the plain statements, by the rules alone, and with conflicts.
// Shows: M2
func TestConformance(t *testing.T) {
	for name, edit := range map[string]func(*table){
		"plain":     func(*table) {},
		"rules":     func(t *table) { t.ruleOnly = true },
		"conflicts": func(t *table) { t.conflicts = true },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "plain" {
				testlevel.Full(t)
			}
			backendtest.RunInBubble(t, func(t *testing.T) backendtest.World {
				t.Helper()
				all := newTable()
				edit(all)
				return all.world(t)
			})
		})
	}
}
