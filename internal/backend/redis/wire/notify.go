package wire

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// DecodeNotification decodes a message on the channel of a Locker. ok is false for a text that no
// script publishes. Any client that may publish can send one.
func DecodeNotification(payload string) (n backend.Notification, ok bool) {
	if id, ok := strings.CutPrefix(payload, "w"); ok {
		return backend.Notification{Event: backend.EventTurn, Request: id}, true
	}
	if id, ok := strings.CutPrefix(payload, "v"); ok {
		return backend.Notification{Event: backend.EventRevoked, Request: id}, true
	}
	if rest, ok := strings.CutPrefix(payload, "c"); ok {
		return decodeCooling(rest)
	}
	return decodeWake(payload)
}

// decodeCooling decodes a request id and the rest of a cooldown in µs.
func decodeCooling(rest string) (n backend.Notification, ok bool) {
	if len(rest) <= idLength {
		return n, false
	}
	in, err := strconv.ParseInt(rest[idLength:], 10, 64)
	return backend.Notification{Event: backend.EventCooling, Request: rest[:idLength], In: micro(in)}, err == nil && in >= 0
}

// encodeWake returns the notification to wake the parked tasks of a key.
func encodeWake(key *backend.Key) string {
	if key.Kind == backend.KindOnce {
		return "po" + key.Name
	}
	return "px" + key.Name
}

// decodeWake decodes a text of encodeWake.
func decodeWake(payload string) (n backend.Notification, ok bool) {
	n = backend.Notification{Event: backend.EventWake, Kind: backend.KindExclusive}
	if n.Name, ok = strings.CutPrefix(payload, "px"); !ok {
		n.Kind = backend.KindOnce
		n.Name, ok = strings.CutPrefix(payload, "po")
	}
	return n, ok && n.Name != "" && len(n.Name) <= maxName
}
