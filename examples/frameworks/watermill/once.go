// Package watermill shows guard.OnceValue in a router of Watermill.
package watermill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

// produced is what the record of a message keeps of each message that its handler produced.
type produced struct {
	UUID     string
	Metadata map[string]string
	Payload  []byte
}

// Once handles each message once, however often it is delivered. A redelivery publishes the
// messages of the first run again, because their publication may have failed after the record.
func Once(locks *lockcore.Locker, key func(*message.Message) string, o guard.OnceOptions) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			o, outer := o, msg.Context()
			o.Fingerprint = idempotency.Fingerprint(nil, msg.Payload)
			defer msg.SetContext(outer) // the hold's ctx ends with the hold
			res, err := guard.OnceValue(outer, locks, key(msg), o, func(ctx context.Context) (record []produced, err error) {
				msg.SetContext(ctx)
				out, err := next(msg)
				for _, m := range out {
					record = append(record, produced{m.UUID, m.Metadata, m.Payload})
				}
				return record, err
			})
			if err != nil {
				return nil, err
			}
			var out []*message.Message
			for _, p := range res.Value {
				m := message.NewMessage(p.UUID, p.Payload)
				m.Metadata = p.Metadata
				out = append(out, m)
			}
			return out, nil
		}
	}
}

// Permanent reports whether each redelivery of a message would end with err too, for
// middleware.PoisonQueueWithFilter in front of Once.
func Permanent(err error) bool {
	var recorded *guard.RecordedError
	return errors.Is(err, lockcore.ErrMismatch) || errors.Is(err, lockcore.ErrRecord) || errors.Is(err, lockcore.ErrKey) || errors.As(err, &recorded)
}
