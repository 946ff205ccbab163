package rows

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// rule applies a rule of package rules to a key. It may run several times, and the last run counts. It
// returns the notifications, and whether the change must survive a crash of the store. A change whose
// loss costs only time need not, because a waiter repeats its request, and a lease ends.
type rule func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool)

// change applies rules to one key, in their order.
type change struct {
	key   *backend.Key
	rules []rule
	err   error // nil: all are stored
	lost  bool  // they may be stored in spite of err, or a duplicate of a write may still arrive
}

// changes collects rules by their keys. Two changes of a key would meet each other.
type changes struct {
	byName map[string]*change
	all    []*change
	of     []*change // of each rule
}

func (cs *changes) add(key *backend.Key, r rule) {
	c := cs.byName[key.Stored[0]]
	if c == nil {
		if c = (&change{key: key}); cs.byName == nil {
			cs.byName = map[string]*change{}
		}
		cs.byName[key.Stored[0]], cs.all = c, append(cs.all, c)
	}
	c.rules, cs.of = append(c.rules, r), append(cs.of, c)
}

// applyChanges applies changes, and returns the one of each rule.
func (b *Backend) applyChanges(ctx context.Context, on Store, cs *changes) []*change {
	for some := range slices.Chunk(cs.all, MaxBatch) {
		b.applyAll(ctx, on, some)
	}
	return cs.of
}

// errBusy is the error of a change whose row changed until the time was over.
var errBusy = errors.New("other clients changed the row again and again")

// within returns the ctx of one call of Backend: it ends after d, with ctx, or with Close.
func (b *Backend) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(b.base, cancel)
	return ctx, func() { stop(); cancel() }
}

// over returns the error of a call whose ctx has ended, or nil.
func (b *Backend) over(ctx context.Context) error {
	switch {
	case b.base.Err() != nil:
		return backend.ErrClosed
	case backend.Ended(ctx):
		return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	return nil
}

// apply applies a rule to a key, once.
func (b *Backend) apply(ctx context.Context, on Store, key *backend.Key, r rule) (lost bool, err error) {
	c := change{key: key, rules: []rule{r}}
	b.applyAll(ctx, on, []*change{&c})
	return c.lost, c.err
}

// insist is apply for a rule that is safe to repeat. Within backend.CallTimeout it applies the rule
// again after a missing reply or a temporary error. sent is the time of the last try.
func (b *Backend) insist(ctx context.Context, on Store, key *backend.Key, r rule) (sent time.Time, lost bool, err error) {
	ctx, cancel := b.within(ctx, backend.CallTimeout)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		sent = time.Now()
		again, err := b.apply(ctx, on, key, r)
		lost = lost || again
		if err == nil || b.Permanent(err) || b.over(ctx) != nil || !backend.Sleep(ctx, pause) { //planted:rows-sent-again
			return sent, lost, err
		}
	}
}

// applyAll applies changes of different keys, at most MaxBatch. It sends the notifications of those that
// it has stored, because a notification must not arrive before its reason.
func (b *Backend) applyAll(ctx context.Context, on Store, all []*change) {
	var notices []rules.Notice
	for todo := all; len(todo) > 0; {
		var more []rules.Notice
		todo, more = b.try(ctx, on, todo)
		notices = append(notices, more...)
	}
	if len(notices) > 0 {
		_ = on.Notify(ctx, notices) // a lost notification costs time
	}
}

// try reads the rows of changes and writes them. It returns the changes that met another write, and the
// notifications of the others.
func (b *Backend) try(ctx context.Context, on Store, todo []*change) (again []*change, notices []rules.Notice) {
	if err := b.over(ctx); err != nil {
		for _, c := range todo {
			c.err = errtext.Wrap(err, c.err)
		}
		return nil, nil
	}
	rows, err := b.read(ctx, on, todo)
	if err != nil {
		for _, c := range todo {
			c.err = err
		}
		return nil, nil
	}
	var writes []Write
	var written []*change
	var told [][]rules.Notice
	for i, c := range todo {
		w, some, err := b.rule(ctx, on, c, &rows[i])
		switch c.err = err; {
		case err != nil:
		case w == nil:
			notices = append(notices, some...)
		default:
			writes, written, told = append(writes, *w), append(written, c), append(told, some)
		}
	}
	if len(writes) == 0 {
		return nil, notices
	}
	for i, err := range on.Write(ctx, writes) {
		c := written[i]
		switch {
		case err == nil:
			notices = append(notices, told[i]...)
		case errors.Is(err, ErrConflict): //planted:rows-read-again
			c.err = errBusy
			again = append(again, c)
		default:
			c.err = b.closedOr(err)
			c.lost = c.lost || b.calls.MayTakeEffect(err)
		}
	}
	return again, notices
}

func (b *Backend) read(ctx context.Context, on Store, todo []*change) ([]Row, error) {
	names := make([]string, len(todo))
	for i, c := range todo {
		names[i] = c.key.Stored[0]
	}
	rows, err := on.Read(ctx, names)
	return rows, b.closedOr(err)
}

// rule applies the rules of a change to a row. It returns nil if nothing has changed. If a rule must know
// whether a Locker listens, and the last answer of the store does not say so, it asks the store and
// applies the rules again.
func (b *Backend) rule(ctx context.Context, on Store, c *change, row *Row) (*Write, []rules.Notice, error) {
	for asked := false; ; asked = true {
		before, last, err := row.decode(c.key.Kind)
		if err != nil {
			return nil, nil, &backend.DataError{Stored: c.key.Stored[0], Row: true, Reply: err}
		}
		var notices []rules.Notice
		k, durable, unknown := before, false, false
		e := rules.Env{Now: row.Now, Locker: b.o.Locker, Listeners: func(locker string) int {
			n, recent := b.listening.of(locker, b.o.ListeningFor)
			unknown = unknown || !asked && (n == 0 || !recent)
			return n
		}}
		for _, apply := range c.rules {
			some, must := apply(&k, e)
			notices, durable = append(notices, some...), durable || must
		}
		if unknown {
			_ = b.listening.ask(ctx, on) // without an answer a place in the queue is lost, which costs time
			continue
		}
		if unchanged(before, k) {
			return nil, notices, nil
		}
		return write(c.key.Stored[0], row, encode(c.key.Kind, &k, last, e.Now), durable), notices, nil
	}
}

// listening has the Lockers that listened when the store was last asked. A wrong one costs time: a
// reservation for a process that has died ends after 500 ms. One that is missing would lose its place, so
// then the store is asked again.
type listening struct {
	mu      sync.Mutex
	lockers map[string]int
	at      time.Time
}

func (l *listening) of(locker string, keep time.Duration) (n int, recent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lockers[locker], time.Since(l.at) < keep
}

func (l *listening) ask(ctx context.Context, on Store) error {
	at := time.Now()
	lockers, err := on.Listening(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockers, l.at = lockers, at
	return nil
}

// NewVersion returns a random version. After a failover that has lost a write, a version that was
// counted could be that of another row than the client has read.
func NewVersion() int64 { return 1 + rand.Int64N(1<<62) }

func write(name string, was *Row, row Row, durable bool) *Write {
	row.Version = NewVersion()
	return &Write{Name: name, Was: was.Version, Read: was.Now, Row: row, Durable: durable}
}

// closedOr returns ErrClosed if Close has caused an error.
func (b *Backend) closedOr(err error) error {
	if err != nil && b.base.Err() != nil {
		return backend.ErrClosed
	}
	return err
}
