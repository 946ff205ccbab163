package lockcore

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/eventlog"
)

func init() { // see eventlog.Class
	eventlog.Class = errorClass
	eventlog.Holder = func(err error) (h event.Holder, queue int, ok bool) {
		if b, ok := errors.AsType[*BusyError](err); ok {
			return b.Holder, b.Queue, true
		}
		if a, ok := errors.AsType[*AbandonedError](err); ok {
			return a.Holder, -1, true
		}
		return h, -1, false
	}
}

// observing returns the Observer of a Locker, and the log of its warnings. The log is nil if o gets
// all events, and so can report them.
func observing(o event.Observer) (event.Observer, *eventlog.Log) {
	if o == event.Discard {
		return nil, nil
	}
	if only, is := o.(interface{ OnlyTraces() bool }); o != nil && !(is && only.OnlyTraces()) {
		return o, nil
	}
	return o, eventlog.New(eventlog.Options{Warnings: true})
}

// logWarning logs e. A panic of the handler of slog.Default() is dropped: on a goroutine of the
// Locker it would end the process.
func (l *Locker) logWarning(ctx context.Context, a *event.Acquisition, e event.Event) {
	defer func() { _ = recover() }()
	l.warnings.Event(ctx, a, e)
}

// warn logs a loss and an overrun of h, once each.
func (h *hold) warn(e event.Event) {
	l := h.grant.l
	if l.warnings == nil {
		return
	}
	switch e.(type) {
	case event.Lost:
		if h.lossLogged.Swap(true) {
			return
		}
	case event.Overrun:
		if h.overrunLogged.Swap(true) {
			return
		}
	default:
		return
	}
	key := &h.grant.queue.key
	l.logWarning(h.callCtx, &event.Acquisition{Kind: event.Kind(key.Kind), Name: h.name, Key: key.Name, Limit: h.limit, Locker: l.id}, e)
}

// warnTakeover logs that h continues the work of a run that ended without an outcome.
func (c *call) warnTakeover(h *hold) {
	if l := c.l; l.warnings != nil && h != nil && h.abandoned && c.kind == event.KindOnce {
		l.logWarning(c.ctx, &event.Acquisition{Kind: c.kind, Name: c.terms.Name, Key: c.key, Locker: l.id},
			event.Granted{Wait: event.Wait{Waited: c.waited()}, Token: h.token, Attempt: int(h.grant.attempt), Abandoned: true})
	}
}

// warnOfSetup logs e if it reports a mistake in the setup, or a server that begins to fail.
func (l *Locker) warnOfSetup(ctx context.Context, e any) {
	if l.warnings == nil {
		return
	}
	switch e.(type) {
	case event.Misconfigured, event.ServerFailed, event.ServerRecovered:
		l.logWarning(ctx, nil, e)
	}
}

// errorClass returns the class of err, with the words of package tracing.
func errorClass(err error) string {
	for _, c := range []struct {
		err  error
		name string
	}{
		{ErrBusy, "busy"},
		{ErrMismatch, "mismatch"},
		{ErrAbandoned, "abandoned"},
		{ErrClosed, "closed"},
		{ErrRecord, "bad_record"},
		{ErrGivenUp, "given_up"},
		{ErrMaxHold, "max_hold"},
		{ErrStalled, "stalled"},
		{ErrRevoked, "revoked"},
		{ErrReplaced, "replaced"},
		{ErrLost, "lost"},
		{ErrTicket, "bad_ticket"},
		{ErrUnsupported, "unsupported"},
		{context.Canceled, "canceled"}, // before unavailable: a canceled command is not an outage
		{ErrUnavailable, "unavailable"},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	if errors.Is(err, ErrNotRun) {
		return "canceled"
	}
	return "error"
}
