package redis

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Park sends park.lua.
func (b *Backend) Park(ctx context.Context, r backend.ParkRequest) (backend.ParkReply, error) {
	entries, woken := parkedNames(r.Key.Stored[0])
	reply, _, err := b.conn.insist(ctx, b.conn.calls, parkScript, []string{r.Key.Stored[0], entries, woken},
		r.Entry, r.Most, millis(r.Keep), b.o.Locker)
	if err != nil {
		return backend.ParkReply{}, err
	}
	switch n, err := number(reply, 0); {
	case err != nil:
		return backend.ParkReply{}, err
	case n == 0:
		return backend.ParkReply{}, nil
	case n == 1:
		return backend.ParkReply{Outcome: backend.ParkFull, Count: small(reply, 1), Oldest: span(reply, 2)}, nil
	}
	return backend.ParkReply{
		Outcome: backend.Parked, Before: small(reply, 1), Count: small(reply, 2), Age: span(reply, 3), Oldest: span(reply, 4),
	}, nil
}

// Unpark sends unpark.lua.
func (b *Backend) Unpark(ctx context.Context, r backend.UnparkRequest) (backend.UnparkReply, error) {
	entries, woken := parkedNames(r.Key.Stored[0])
	args := []any{r.Woken, r.Prefix, micros(r.FreshTime()), r.Marked}
	for _, entry := range r.Remove {
		args = append(args, entry)
	}
	reply, _, err := b.conn.insist(ctx, b.conn.ends, unparkScript, []string{r.Key.Stored[0], entries, woken}, args...)
	if err != nil {
		return backend.UnparkReply{}, err
	}
	marked, err := number(reply, 4)
	if err != nil {
		return backend.UnparkReply{}, err
	}
	u := backend.UnparkReply{Removed: small(reply, 0), Age: span(reply, 1), Count: small(reply, 2), Oldest: span(reply, 3), Marked: marked}
	for i := 5; i < len(reply); i++ {
		u.Wake = append(u.Wake, text(reply, i))
	}
	return u, nil
}

// CallWaker sends call_waker.lua.
func (b *Backend) CallWaker(ctx context.Context, key *backend.Key) (int, error) {
	reply, _, err := b.conn.insist(ctx, b.conn.ends, callScript, key.Stored[:1], b.channels, encodeWake(key))
	if err != nil {
		return 0, err
	}
	if _, err := number(reply, 0); err != nil {
		return 0, err
	}
	return small(reply, 0), nil
}

const maxName = 512 // bytes of the name of a key

// encodeWake returns the text of the notification to wake the parked tasks of a key.
func encodeWake(key *backend.Key) string {
	if key.Kind == backend.KindOnce {
		return "po" + key.Name
	}
	return "px" + key.Name
}

// decodeWake decodes a text of encodeWake. ok is false for any other text. Any client that may
// publish can send one.
func decodeWake(payload string) (n backend.Notification, ok bool) {
	n = backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive}
	if n.Name, ok = strings.CutPrefix(payload, "px"); !ok {
		n.Kind = backend.KindOnce
		n.Name, ok = strings.CutPrefix(payload, "po")
	}
	return n, ok && n.Name != "" && len(n.Name) <= maxName
}
