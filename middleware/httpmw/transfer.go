package httpmw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A handler under Idempotent may transfer its hold to a job with guard.Ticket, and respond with
// 202. That response is not the record of the key, because the work has not ended. It is stored
// with the hold as an interim answer, see access.Locker.Interim. So it is removed when the hold
// ends by Complete, by a release or as abandoned.

// Complete records the response to a request whose handler under [Idempotent] has called
// guard.Ticket, and ends the hold. lease is the result of [lockcore.Locker.Adopt] for that ticket.
// From then on, and for IdempotentOptions.Keep, repetitions of the request get status, header and
// body, with Idempotent-Replayed: true.
//
//   - status is 200 to 999.
//   - header may be nil. Content-Length, and the headers that the documentation of
//     IdempotentOptions.OmitHeaders lists, are not recorded.
//   - body has at most 16 MiB. It is empty for a status without a body.
//   - The key of lease is one of Idempotent, see [Key].
//
// If an argument is invalid or the response cannot be encoded, Complete returns an error that names
// the reason, and the lease continues. Otherwise it returns the result of
// [lockcore.Lease.Complete].
func Complete(ctx context.Context, lease *lockcore.Lease, status int, header http.Header, body []byte) error {
	if lease.Keep() == 0 || !strings.HasPrefix(lease.Key(), keyPrefix) {
		return fmt.Errorf("httpmw: Complete: the key of lease is %q, must be the Key of a request under Idempotent", lease.Key())
	}
	if status < 200 || status > 999 {
		return fmt.Errorf("httpmw: Complete: status is %d, must be between 200 and 999", status)
	}
	if len(body) > maxLimit || len(body) > 0 && !bodyAllowed(status) {
		return fmt.Errorf("httpmw: Complete: body is %d bytes long, must be at most %d, and empty for status %d", len(body), maxBody(status), status)
	}
	var o IdempotentOptions
	kept := o.kept(header, nil)
	delete(kept, "Content-Length") // perhaps of another message
	data, err := codec{}.Encode(response{status: status, header: kept, body: body})
	if err != nil {
		return errtext.Prefix("httpmw: Complete", err)
	}
	record, err := idempotency.Content{Ending: idempotency.Done, Codec: codec{}.Name(), Data: data}.Encode()
	if err != nil {
		return errtext.Prefix("httpmw: Complete", err)
	}
	return lease.Complete(ctx, record, lease.Keep())
}

func maxBody(status int) int {
	if bodyAllowed(status) {
		return maxLimit
	}
	return 0
}

// keepInterim stores the interim answer: the response of a handler that has called guard.Ticket.
// Repetitions get it until the adopter ends. ctx carries the hold. Without an interim answer
// repetitions get 409.
func (m *idempotent) keepInterim(ctx context.Context, key string, own *response, before http.Header) {
	if own.streamed || !m.keeps(own) {
		return
	}
	data, err := codec{}.Encode(own.kept(m.IdempotentOptions, before))
	if err != nil || len(data) > m.guard.MaxResult {
		return
	}
	_ = access.Of(m.locks).Interim(ctx, key, data)
}

// replayInterim writes an interim answer to w. Retry-After comes from busy, unless the handler has
// set it.
func (m *idempotent) replayInterim(w http.ResponseWriter, r *http.Request, answer []byte, busy *lockcore.BusyError) error {
	var a response
	if err := (codec{}).Decode(answer, &a); err != nil {
		access.Of(m.locks).Report(r.Context(), event.BadRecord{Err: err})
		return busy
	}
	eachRun(w, func(outer *running) { outer.noEffect.Store(true) }) // an Idempotent around must not record it
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(busy.RetryAfter().Seconds()))))
	w.Header().Set(HeaderReplayed, "true")
	a.write(w)
	return nil
}

// transferred reports whether guard.Ticket has ended ctx.
func transferred(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), lockcore.ErrReleased)
}
