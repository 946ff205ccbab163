package lockcore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	maxToken  = 9e15 - backend.TokensPerGrant // the scripts refuse numbers above 9e15
	maxTicket = 24 * time.Hour                // the longest time within which a hold can be adopted
)

// Ticket transfers the hold to the process that calls [Locker.Adopt] with the ticket within d. d is
// at least the Lease of this lease and at most 24 h. Ticket sends one command and takes at most 1 s.
//
// When Ticket returns a ticket, this lease has ended without a release. Its ctx was canceled with
// ErrReleased before that, so two valid holds never overlap. For work that goes on, such as to send
// the ticket, use the ctx of [Detach].
//
//   - The key stays held on the way, and no waiter gets it.
//   - The hold is not renewed on its way. If no process adopts it within d, the key is abandoned,
//     as after a crash.
//   - Revoke of a hold on its way takes effect when it is adopted. Until then, or until the end of
//     the ticket, the key stays held.
//   - If the ticket cannot be sent, adopt it and release that lease.
//   - The MinHold of this lease no longer applies.
//
// If Ticket returns an error, there is no ticket and nothing was transferred:
//
//   - ErrUnavailable: Redis did not reply. The lease goes on. The key may be kept for d if this
//     lease does not end by Release, Complete or Abandon.
//   - ErrRecord: the data of the key cannot be read. The lease goes on.
//   - ErrNested: this lease is nested, or nested runs go on. The lease goes on.
//   - ErrReleased, or why the lease ended early: it has ended before.
//   - An error that names d: d is out of range. The lease goes on.
//   - An error that names the key: the lease is a share. The lease goes on.
//
// A ticket is printable ASCII of at most 800 bytes. It is a secret: a process that has it, and can
// send commands to the same Redis, gets the key. The Locker writes it to no event, log or error.
func (le *Lease) Ticket(ctx context.Context, d time.Duration) (string, error) {
	if le == nil {
		return "", ErrReleased
	}
	h := le.h
	g, l := h.grant, h.grant.l
	if d < g.leaseTerm || d > maxTicket {
		return "", fmt.Errorf("lockcore: Ticket: d is %v, must be between %v and %v", d, g.leaseTerm, maxTicket)
	}
	if g.share != nil {
		return "", fmt.Errorf("lockcore: Ticket: the hold of %q is a share, must be of the key alone", g.queue.key.Name)
	}
	if le.nested != nil {
		return "", errNestedTicket
	}
	if le.ended.Load() || !h.valid() {
		return "", le.endedBy()
	}
	if h.hasNested() { // transfer would refuse the hold too, but only after a useless command
		return "", errNestedTicket
	}
	reply, _ := l.backend.Extend(ctx, backend.RenewRequest{
		Key: &g.queue.key, ID: g.id, Lease: d, Retention: g.retention(d), Token: h.token, Holder: l.holderText(h.callCtx) + backend.Transferred,
	})
	var ticket string
	err := reply.Err
	switch {
	case err != nil:
		err = unavailable(err)
	case reply.Verdict != backend.VerdictKept:
		g.lose(lossOf(reply.Verdict))
		return "", le.endedBy()
	default:
		ticket, err = h.transfer()
	}
	if err != nil {
		g.mu.Lock()
		g.published = nil // the next renewal, if the lease goes on, stores the text of a renewed lease again
		g.mu.Unlock()
	}
	return ticket, err
}

var errNestedTicket = fmt.Errorf("%w, or a ticket for a hold that has nested runs", ErrNested)

// Transferred reports whether Ticket has ended the hold.
func (le *Lease) Transferred() bool {
	if le == nil {
		return false
	}
	le.h.grant.mu.Lock()
	defer le.h.grant.mu.Unlock()
	return le.h.transferred
}

// Keep returns Claim.Keep, how long the number of runs is remembered. An adopted lease has that of
// the first Claim. For an exclusive key Keep returns 0.
func (le *Lease) Keep() time.Duration {
	if le == nil || le.h.grant.queue.key.Kind != backend.KindOnce {
		return 0
	}
	return le.h.grant.keep
}

// TicketOf returns Lease.Ticket of the innermost hold of key in a ctx that carries e, see
// access.Ticket.
func (e *entry) TicketOf(key string) func(context.Context, time.Duration) (string, error) {
	for e != nil && e.of.grant.queue.key.Name != key {
		e = e.outer()
	}
	if e == nil {
		return nil
	}
	return e.of.lease.Ticket
}

func (h *hold) hasNested() bool {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	return h.runs > 1
}

// transfer ends the hold locally and returns its ticket. The backend keeps the hold. Only this
// process has the id of the grant, so no process can adopt the hold before transfer returns.
//
// grant.mu decides the races with a loss and with a nested run. Lease.ended decides the race with
// Release. The loser of a race changes nothing.
func (h *hold) transfer() (ticket string, err error) {
	g, l := h.grant, h.grant.l
	now := time.Now()
	g.mu.Lock()
	switch {
	case h.lost:
		err = g.cause
	case h.closed:
		err = ErrReleased
	case h.leftLocked(now) <= 0:
		err = ErrLost
	case h.runs > 1:
		err = errNestedTicket
	case !h.lease.ended.CompareAndSwap(false, true): //planted:ticket-against-release
		err = ErrReleased
	}
	if err != nil {
		g.mu.Unlock()
		return "", err
	}
	h.closed, h.transferred, h.runs = true, true, 0
	g.hold = nil
	_, stranded := h.closeLocked()
	r := event.Released{Held: now.Sub(h.grantedAt()), Renewals: int(h.renewals), Failures: int(h.failures), Transferred: true}
	if h.events != nil {
		r.Failed = h.events.failed
	}
	g.mu.Unlock()
	stranded.rejectAll()
	h.cancel(ErrReleased) // before the caller has the ticket
	ticket = g.ticket()
	defer func() {
		if ticket == "" { // the Observer panics, and the ticket is lost
			g.releaseAsync(outcome{abandoned: true})
		}
		l.removeGrant(g)
		l.backend.Report()
	}()
	mine, _, _ := g.queue.handOff(g, false, now)
	g.close()
	if mine { // otherwise the loss of the lease has passed the leadership on
		g.queue.passLeadership(nil, nil)
	}
	if l.observer != nil {
		known := ticket
		ticket = ""
		h.emit(r)
		ticket = known
	}
	return ticket, nil
}

// ticketData is the content of a ticket beside the key.
type ticketData struct {
	id         string // of the grant: only the backend, the holder and the ticket have it
	token      int64  // the greatest token used under the grant
	keep       time.Duration
	atMostOnce bool
}

const (
	ticketVersion = 1
	ticketSum     = 8  // bytes of the digest
	idLength      = 26 // bytes of the id of a grant

	ticketAtMostOnce = 0x80
)

func (g *grant) ticket() string {
	last, _ := g.lastHold()
	return writeTicket(&g.queue.key, ticketData{id: g.id, token: last, keep: g.keep, atMostOnce: g.atMostOnce})
}

// writeTicket returns a ticket: base64 of
//
//	version (1 byte) · digest (8) · kind (1), plus 128 with AtMostOnce · token (uvarint) · keep in ms (uvarint) · id (26) · key
//
// The digest covers the rest and the stored name of the key, which contains the prefix. It protects
// against mistakes, not against forgery: the id is the secret.
func writeTicket(key *backend.Key, t ticketData) string {
	rest := []byte{byte(key.Kind)}
	if t.atMostOnce {
		rest[0] |= ticketAtMostOnce
	}
	rest = binary.AppendUvarint(rest, uint64(t.token))               //nolint:gosec // not negative
	rest = binary.AppendUvarint(rest, uint64(t.keep.Milliseconds())) //nolint:gosec // not negative
	rest = append(append(rest, t.id...), key.Name...)
	return base64.RawURLEncoding.EncodeToString(append(append([]byte{ticketVersion}, ticketDigest(key, rest)...), rest...))
}

func ticketDigest(key *backend.Key, rest []byte) []byte {
	sum := sha256.Sum256([]byte("ticket\n" + key.Stored[0] + "\n" + string(rest)))
	return sum[:ticketSum]
}

// TicketKey returns the kind and the name of the key of a ticket. It sends no command, so the hold
// may have ended. It returns ErrTicket if the text is not a ticket, or not one of a Locker with the
// same prefix.
func (l *Locker) TicketKey(ticket string) (event.Kind, string, error) {
	key, _, err := l.readTicket(ticket)
	return event.Kind(key.Kind), key.Name, err
}

// readTicket accepts exactly what writeTicket returns.
func (l *Locker) readTicket(ticket string) (key backend.Key, t ticketData, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(ticket)
	const head = 1 + ticketSum
	malformed := fmt.Errorf("%w: the text of %d bytes is not a ticket", ErrTicket, len(ticket))
	if err != nil || strings.ContainsAny(ticket, "\r\n") || len(b) < head+1 || b[0] != ticketVersion {
		return key, t, malformed
	}
	rest := b[head:]
	kind, atMostOnce := backend.Kind(rest[0]&^ticketAtMostOnce), rest[0]&ticketAtMostOnce != 0
	if kind != backend.KindExclusive && kind != backend.KindOnce {
		return key, t, malformed
	}
	token, n := binary.Uvarint(rest[1:])
	if n <= 0 || token > maxToken {
		return key, t, malformed
	}
	keep, m := binary.Uvarint(rest[1+n:])
	if m <= 0 || keep < uint64(time.Second/time.Millisecond) || keep > uint64(maxKeep/time.Millisecond) || len(rest) < 1+n+m+idLength {
		return key, t, malformed
	}
	id, name := string(rest[1+n+m:][:idLength]), string(rest[1+n+m+idLength:])
	if checkKey(name) != nil || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return key, t, malformed
	}
	key = l.backend.Key(kind, name)
	t = ticketData{id: id, token: int64(token), keep: time.Duration(keep) * time.Millisecond, atMostOnce: atMostOnce}
	if writeTicket(&key, t) != ticket {
		return backend.Key{}, ticketData{}, fmt.Errorf("%w: it was changed, or made under another Options.Prefix", ErrTicket)
	}
	return key, t, nil
}

// cannotAdopt makes err match ErrNotRun.
func cannotAdopt(err error) error {
	if errors.Is(err, ErrNotRun) {
		return err
	}
	return errtext.Wrap(ErrNotRun, err)
}
