package plain

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Message is a message that a broker delivers at least once.
type Message struct{ ID, Body string }

// Consume runs each message once, however often the broker delivers it, and says whether to
// acknowledge it.
func Consume(ctx context.Context, locks *lockcore.Locker, m Message, handle func(context.Context, Message) error, dead func(Message, error)) (ack bool) {
	o := guard.OnceOptions{
		Terms: lockcore.Terms{Name: "order-created"}, Keep: 8 * 24 * time.Hour, // longer than the topic's retention, which is 7 days
		Fingerprint: idempotency.Fingerprint(nil, []byte(m.Body)),
	}
	_, err := guard.Once(ctx, locks, "order-created:"+m.ID, o, func(ctx context.Context) error { return handle(ctx, m) })
	switch {
	case errors.Is(err, lockcore.ErrMismatch), errors.Is(err, lockcore.ErrRecord), errors.Is(err, lockcore.ErrKey):
		dead(m, err) // a redelivery would fail again: the same ID with another body, a record that does not decode, or no usable ID
		return true
	default:
		var recorded *guard.RecordedError
		return err == nil || errors.As(err, &recorded) // done, now or before. Any other message is delivered again
	}
}
