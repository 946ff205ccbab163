package security_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// fields of a hash, see internal/backend/redis/scripts/parts/key.lua.
var fields = strings.Fields("s h o x d m t f n v a g e r l")

// bad are values that no script writes into most fields.
var bad = []string{
	"", "abc", "-1", "-9007199254740993", "1e308", "-1e308", "nan", "-nan", "inf", "-inf", "0x1p60", "18446744073709551616", "1.5", " 7 ", "\x00\xff\xfe",
	"h\nx\nt\n\n\n", "9007199254740992", "1795333188515267000", "1e300", "-7", "0x10", "d", "r", "p", "[[%a", strings.Repeat("9", 400),
}

// poisoned is a key on a real server into which another program writes.
type poisoned struct {
	*testing.T
	rdb   *redis.Client
	a, b  *lockcore.Locker
	calls int
	held  []*lockcore.Lease
}

func newPoisoned(t *testing.T) *poisoned {
	t.Helper()
	rdb := redistest.Real(t).Client(t)
	return &poisoned{T: t, rdb: rdb, a: newLocker(t, rdb, lockcore.Options{}), b: newLocker(t, rdb, lockcore.Options{})}
}

func hashOf(kind event.Kind) string {
	if kind == event.KindOnce {
		return "holdfast:2:o:{k}"
	}
	return "holdfast:2:x:{k}"
}

// states prepare a key before it is poisoned.
var states = map[string]func(p *poisoned, kind event.Kind){
	"free": func(*poisoned, event.Kind) {},
	"held": func(p *poisoned, kind event.Kind) {
		_, err := p.claim(p.b, kind, false)
		check(p.T, err)
	},
	"released": func(p *poisoned, kind event.Kind) {
		le, err := p.claim(p.b, kind, false)
		check(p.T, err)
		check(p.T, le.Release(p.Context()))
	},
	"abandoned": func(p *poisoned, kind event.Kind) {
		le, err := p.claim(p.b, kind, false)
		check(p.T, err)
		check(p.T, le.Abandon(p.Context()))
	},
	"done": func(p *poisoned, kind event.Kind) {
		le, err := p.claim(p.b, kind, false)
		check(p.T, err)
		if kind == event.KindOnce {
			check(p.T, le.Complete(p.Context(), []byte("record"), time.Minute))
		}
	},
}

func (p *poisoned) claim(l *lockcore.Locker, kind event.Kind, most bool) (*lockcore.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context()), 5*time.Second)
	p.Cleanup(cancel)
	if kind == event.KindExclusive {
		le, err := l.Acquire(ctx, "k", noWait)
		return p.keep(le), err
	}
	le, _, err := l.Claim(ctx, "k", lockcore.Claim{Terms: noWait, AtMostOnce: most, Fingerprint: []byte("f")})
	return p.keep(le), err
}

// keep records a lease that must end with its case. Otherwise the process would serve the next call
// without a request to Redis.
func (p *poisoned) keep(le *lockcore.Lease) *lockcore.Lease {
	if le != nil {
		p.held = append(p.held, le)
	}
	return le
}

// clean checks that err is an error that callers know.
func (p *poisoned) clean(what string, err error) {
	p.Helper()
	p.calls++
	if err != nil && !errors.Is(err, lockcore.ErrNotRun) && !errors.Is(err, lockcore.ErrLost) && !errors.Is(err, lockcore.ErrRevoked) &&
		!errors.Is(err, lockcore.ErrReleased) {
		p.Errorf("%s: %v", what, err)
	}
}

// force ends the hold that Inspect returned, if there is one.
func (p *poisoned) force(h lockcore.Holding, kind event.Kind) {
	p.Helper()
	if h.State != lockcore.StateHeld {
		return
	}
	if err := p.b.ForceClearEvenAlive(p.Context(), kind, "k", h); !errors.Is(err, lockcore.ErrChanged) {
		p.clean("force clear", err)
	}
}

// use acquires the key and calls every method for it. A granted key is held: another call does not
// get it, and its token is valid.
func (p *poisoned) use(kind event.Kind, most bool) {
	p.Helper()
	ctx := p.Context()
	h, err := p.a.Inspect(ctx, kind, "k")
	p.clean("inspect", err)
	if h.HeldFor < 0 || h.Remaining < 0 || h.KeepLeft < 0 || h.Token < 0 || h.Attempt < 0 || h.Queue < 0 {
		p.Errorf("inspect: %+v", h)
	}
	le, err := p.claim(p.a, kind, most)
	p.clean("claim", err)
	if le == nil {
		p.clean("revoke", p.b.Revoke(ctx, kind, "k"))
		p.force(h, kind)
		p.clean("clear", p.b.Clear(ctx, kind, "k"))
		return
	}
	if token := le.Token(); token <= 0 || token > 1<<53 {
		p.Errorf("token %d", token)
	}
	other, err := p.claim(p.b, kind, most)
	p.clean("claim of another", err)
	if other != nil {
		p.Errorf("both calls have the key")
	}
	p.clean("extend", le.Extend(ctx, time.Minute))
	if kind == event.KindOnce {
		p.clean("complete", le.Complete(ctx, []byte("record"), time.Minute))
		return
	}
	p.clean("release", le.Release(ctx))
}

// forget releases and deletes the key for the next case.
func (p *poisoned) forget(kind event.Kind) {
	p.Helper()
	for _, le := range p.held {
		_ = le.Release(p.Context())
	}
	p.held = nil
	check(p.T, p.rdb.Del(p.Context(), hashOf(kind), hashOf(kind)+":q").Err())
}

// For any value in one field of a key, nothing panics, every error is one that callers know, and at
// most one call has the key.
// Shows: X1
func TestPoisonedFields(t *testing.T) {
	testlevel.Full(t)
	for name, prepare := range states {
		for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} {
			t.Run(fmt.Sprintf("%s %s", name, kind), func(t *testing.T) {
				t.Parallel()
				p := newPoisoned(t)
				for _, field := range fields {
					for _, value := range bad {
						p.set(prepare, kind, field, value)
					}
				}
				if p.calls < 800 {
					t.Errorf("inconclusive: %d calls", p.calls)
				}
			})
		}
	}
}

// The same holds for strings that look like a plain hold or a plain record.
func TestPoisonedPlainHold(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p, id := newPoisoned(t), strings.Repeat("A", 26)
	for _, value := range []string{
		"", "h", "h ", "h" + id, "h" + id + " ", "h" + id + " 1 1 0 L who", "h" + id + " 1 1 0 L ", "h" + id + " 1 1 0  who", "h" + id + "A 1 1 0 L who",
		"h" + id + " 9999999999999999 9999999999 9999999999999999 L who", "h" + id + " 99999999999999999 1 0 L who", "h" + id + " 1 99999999999 0 L who",
		"h" + id + " 0 0 0 L who", "h" + id + " -1 1 0 L who", "h" + id + " 1e9 1 0 L who", "h" + id + " nan 1 0 L who", "h" + id + " 1 1 9999999999999999 L \x00\n",
		"h" + strings.Repeat("%", 26) + " 1 1 0 L who", "x" + id + " 1 1 0 L who",
		"o", "o" + id + " 1 1 0 L who", "o" + id + " 1 1 0 L 0 ", "o" + id + " 1 1 0 L 3 f\n1who", "o" + id + " 1 1 9999999999999999 L 4 f\n1", "o" + id + " 1 1 0 L -1 who",
		"o" + id + " 1 1 0 L " + strings.Repeat("9", 400) + " who", "o" + id + "A 1 1 0 L 0 who",
		"d", "d" + id + " 1 1 0 0", "d" + id + " 1 1 0 0 ", "d" + id + " 1 1 1 3 fwhorecord", "d" + id + " 1 1 1 3 fwh", "d" + id + " 1 1 " + strings.Repeat("9", 400) + " 0 r",
		"d" + id + " 99999999999999999 1 0 0 r", "d" + id + " 1 99999999999999999 0 0 r", "d" + id + " 9999999999999999 9999999999999999 0 0 r", "d" + id + "A 1 1 0 0 r",
	} {
		for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} {
			check(t, p.rdb.Set(t.Context(), hashOf(kind), value, time.Minute).Err())
			p.use(kind, false)
			p.forget(kind)
		}
	}
}

func (p *poisoned) set(prepare func(*poisoned, event.Kind), kind event.Kind, field, value string) {
	p.Helper()
	for _, most := range []bool{false, true} {
		if most && kind == event.KindExclusive {
			continue
		}
		before := p.Failed()
		prepare(p, kind)
		check(p.T, redistest.Unfold(p.Context(), p.rdb, hashOf(kind)))
		check(p.T, p.rdb.HSet(p.Context(), hashOf(kind), field, value).Err())
		p.use(kind, most)
		if p.Failed() && !before {
			p.Logf("the first of these: field %s, value %q, at most once %v", field, value, most)
		}
		p.forget(kind)
	}
}
