package lockcore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"
)

const revokePause = 100 * time.Millisecond // between two renewals that messages about one hold cause

// State is the state of a key.
type State string

// The states of a key.
const (
	StateFree      State = "free"
	StateHeld      State = "held"
	StateReserved  State = "reserved"  // released, and kept for a moment for the first process in the queue
	StateParked    State = "parked"    // released, and kept from all calls for the rest of Terms.MinHold
	StateDone      State = "done"      // once keys: it has a record, of a result or of a failure
	StateAbandoned State = "abandoned" // once keys: the lease expired without a release, or its holder called Abandon; no run since then
)

// How much of a done key's record inspect.lua returns.
const (
	recordNone  = "0"
	recordWhole = "1"
	recordHead  = "2"
)

// Holding is what Redis knows of a key.
type Holding struct {
	State     State
	Holder    Holder        // the holder; or the last one (abandoned, Died), or the one that completed it (done)
	HeldFor   time.Duration // since the start of the run that holds, last held, or completed the key
	Remaining time.Duration // held: of the lease if it is not renewed; reserved: of the reservation; parked: of MinHold
	Token     int64         // of the last hold that Redis knows; 0 if none is remembered
	Attempt   int           // runs of a once key; 0 for an exclusive one
	KeepLeft  time.Duration // done, abandoned: how much longer Redis remembers that; 0 in other states
	Queue     int           // waiting processes
	Revoked   bool          // held, and Revoke was called: it is not renewed any more
	Died      bool          // free exclusive key: Holder, its last one, died or called Abandon; see Lease.Abandoned
}

// Inspect returns what Redis knows of a key. It changes nothing, and no replica answers it. For
// about 300 ms after a hand-off inside a process it may name an earlier hold of that process.
// Errors: ErrKey, an unknown kind, ErrUnavailable (also after Close), or the cause of ctx. Without
// a reply it asks again, for at most 1 s.
func (l *Locker) Inspect(ctx context.Context, kind Kind, key string) (Holding, error) {
	h, _, err := l.inspect(ctx, kind, key, recordNone)
	return h, err
}

// Look is [Locker.Inspect] of a once key together with its record, in one round trip. The record is
// nil unless the state is StateDone. Look claims nothing. Errors: those of Inspect.
func (l *Locker) Look(ctx context.Context, key string) (Holding, *Record, error) {
	h, reply, err := l.inspect(ctx, KindOnce, key, recordWhole)
	if err != nil || h.State != StateDone {
		return h, nil, err
	}
	return h, &Record{Data: []byte(text(reply, 11)), Attempt: h.Attempt}, nil
}

func (l *Locker) inspect(ctx context.Context, kind Kind, key, record string) (Holding, []any, error) {
	reply, err := l.operate(ctx, kind, key, func(keys [2]string) ([]any, error) {
		r, _, err := l.conn.insist(ctx, l.conn.calls, inspectScript, keys[:], record)
		return r, err
	})
	if err != nil {
		return Holding{}, nil, err
	}
	h, err := readHolding(kind, reply)
	return h, reply, err
}

// readHolding parses the reply of inspect.lua.
func readHolding(kind Kind, reply []any) (Holding, error) {
	var n [11]int64
	for _, i := range []int{2, 3, 4, 5, 6, 7, 8, 9, 10} {
		var err error
		if n[i], err = number(reply, i); err != nil {
			return Holding{}, unavailable(err)
		}
	}
	live, abandoned := n[7] == 1, n[8] == 1
	h := Holding{
		State: StateFree, Holder: parseHolder(text(reply, 1)), HeldFor: micro(n[2]), Remaining: micro(n[3]),
		Token: n[4], Attempt: int(n[5]), Queue: int(n[6]), Revoked: n[9] == 1,
	}
	switch s := text(reply, 0); {
	case s == "d":
		h.State, h.KeepLeft = StateDone, micro(n[10])
	case s == "h" && live:
		h.State = StateHeld
	case kind == KindOnce && (s == "h" || abandoned):
		h.State, h.KeepLeft = StateAbandoned, micro(n[10])
	case s == "r" && live:
		h.State = StateReserved
	case s == "p" && live:
		h.State = StateParked
	case s == "h" || abandoned: // Redis remembers the holder for a day, but the next caller gets the key
		h.Died = true
	}
	return h, nil
}

// Revoke takes a key away from its holder: the holder's ctx is canceled with ErrRevoked. A process subscribes to
// revocations while it waits for a key, or has held any lease for longer than a second, also with NoRenew. Then it
// cancels within milliseconds. A younger lease is canceled when its process subscribes. If the message is lost, a
// renewed lease is canceled with its next renewal. A lease with NoRenew is then canceled when its process subscribes
// again, or at its end. The key is free when the handler has returned, or at the lease's end, never sooner. A key
// without a holder is not an error. Errors: those of Inspect.
func (l *Locker) Revoke(ctx context.Context, kind Kind, key string) error {
	id := rand.Text() // the same in each repeat, so that none takes the key from the next holder
	_, err := l.operate(ctx, kind, key, func(keys [2]string) ([]any, error) {
		r, _, err := l.conn.insist(ctx, l.conn.ends, revokeScript, keys[:1], l.wakePrefix, id)
		return r, err
	})
	return err
}

// ClearSeen is Clear on the condition that nothing has happened to the key since seen, the result
// of Inspect or Look: no run has begun or was completed. The zero Holding, which Inspect returns
// with ErrRecord, stands for a key whose data cannot be read. Otherwise ClearSeen changes nothing
// and returns an error that satisfies ErrChanged.
func (l *Locker) ClearSeen(ctx context.Context, kind Kind, key string, seen Holding) error {
	if seen == (Holding{}) {
		return l.clear(ctx, kind, key, "bad", "")
	}
	return l.clear(ctx, kind, key, strconv.FormatInt(seen.Token, 10), flag(seen.State == StateDone))
}

// Clear forgets that a key is done, abandoned or parked, so that it runs again. It is for
// operators: the forgotten run may have had its effect. A key that is held is refused with an error
// that satisfies ErrBusy (not a *BusyError). Other errors: those of Inspect.
func (l *Locker) Clear(ctx context.Context, kind Kind, key string) error {
	return l.clear(ctx, kind, key, "", "")
}

func (l *Locker) clear(ctx context.Context, kind Kind, key, token, done string) error {
	id := rand.Text() // the same in each repeat; a repeat that finds the key cleared, or in use again, changes nothing and returns 1
	reply, err := l.operate(ctx, kind, key, func(keys [2]string) ([]any, error) {
		r, _, err := l.conn.insist(ctx, l.conn.ends, clearScript, keys[:],
			millis(freeTTL), micros(claimWindow), l.wakePrefix, flag(l.conn.single), token, done, id)
		return r, err
	})
	if err != nil {
		return err
	}
	switch n, err := number(reply, 0); {
	case err != nil:
		return unavailable(err)
	case n == 0:
		return fmt.Errorf("%w: %q is held and cannot be cleared", ErrBusy, key)
	case n == 2:
		return fmt.Errorf("%w: %q", ErrChanged, key)
	}
	return nil
}

func (l *Locker) operate(ctx context.Context, kind Kind, key string, send func(keys [2]string) ([]any, error)) ([]any, error) {
	if kind != KindExclusive && kind != KindOnce {
		return nil, fmt.Errorf("lockcore: kind is %q, must be KindExclusive or KindOnce", kind)
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	reply, err := send(redisKeys(l.prefix, kind, key))
	if err != nil {
		return nil, unavailable(err)
	}
	return reply, nil
}

// debounceRevoke returns the grant of a revocation message that must be checked now: the first
// message for an id at once, and at most one more per revokePause.
func (l *Locker) debounceRevoke(id string) *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.grants[id]
	if g == nil {
		return nil
	}
	if _, lately := l.revokeHints[id]; lately {
		l.revokeHints[id] = true
		return nil
	}
	if l.revokeHints == nil {
		l.revokeHints = map[string]bool{}
	}
	l.revokeHints[id] = false
	time.AfterFunc(revokePause, func() {
		l.mu.Lock()
		again := l.revokeHints[id]
		delete(l.revokeHints, id)
		l.mu.Unlock()
		if again {
			l.revoked(id)
		}
	})
	return g
}

// revoked handles a revocation message. It is only a signal, because any client of Redis can send
// one. So Redis is asked, at a bounded rate, and its reply decides.
func (l *Locker) revoked(id string) {
	if g := l.debounceRevoke(id); g != nil {
		l.watchdog.now(g)
	}
}
