package event

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Kind names the two namespaces of keys. The zero value is not a kind.
type Kind uint8

// The kinds of keys.
const (
	// KindExclusive: the keys of Acquire. No two holds at the same time, except shares.
	KindExclusive = Kind(backend.KindExclusive)
	// KindOnce: the keys of Claim. No run while the key has a record.
	KindOnce = Kind(backend.KindOnce)
)

// String returns "exclusive" or "once".
func (k Kind) String() string {
	switch k {
	case KindExclusive:
		return "exclusive"
	case KindOnce:
		return "once"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText returns the text of String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Holder describes the current or the last holder of a key. A field that is not known is empty.
type Holder struct {
	Locker      string // UUID, see Locker.ID; empty after the hold was released or completed
	Host        string
	PID         int
	Task        string // see WithTask
	Traceparent string // W3C trace context of the holder's span
}

func (h Holder) String() string {
	if h.Host == "" {
		return "unknown"
	}
	s := fmt.Sprintf("%s/%d", h.Host, h.PID)
	if h.Task != "" {
		s += fmt.Sprintf(" task %q", h.Task)
	}
	return s
}
