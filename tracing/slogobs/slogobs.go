// Package slogobs writes what a [lockcore.Locker] does to a log/slog logger: losses, refusals and problems of the
// setup. It is for programs without OpenTelemetry, and does not import it. To use both, join the Observers:
//
//	lockcore.Options{Observer: lockcore.Join(traces, slogobs.New(slog.Default(), slogobs.Options{}))}
//
// # Records
//
//	lease lost                    error  Redis no longer knew the lease, or did not answer until it ended
//	lease ended early             warn   max_hold, stalled, revoked, given_up
//	handler ignores its context   warn   it runs on after the lease or the caller's ctx ended
//	renewal failed                warn   no reply; once until a renewal succeeds
//	record not stored             error  the work is done, and the next call may do it again
//	record stored late            info
//	outcome unknown               error  the handler abandoned the key: guard.Unknown, or a panic under at most once
//	release failed                info   no reply; the key is free at the end of its lease at the latest
//	took over                     warn   a once key that the previous holder abandoned: its work may be half done
//	refused                       info   busy, closed
//	                              debug  canceled
//	                              warn   mismatch
//	                              error  abandoned, unavailable, bad_record
//	job lost to a conflict        error  the key was busy on the job's last attempt
//	no key                        warn   a job or request without a key
//	another payload               warn   a done key was called with another payload, and replayed
//	tick abandoned                error  an instance died during a cron tick, and no other ran it
//	cleanup failed                warn   Redis did not confirm withdrawals or releases: a key may stay held until its lease ends
//	record does not decode        error
//	misconfigured                 error
//	waiting, granted, released, replayed, handler failed
//	                              debug  a handler's error is the program's to log
//	parked, unparked              debug  a task waits for its key outside of its worker; it got the key, or ended
//
// For each of these messages and each Terms.Name, at most 10 records a second are written. The next record after that
// second has the attribute "suppressed": the number of records that were not written.
//
// # Attributes
//
// kind and name; limit, only of a share, -1 without a limit; key_digest, the first 8 bytes of the SHA-256 of the key in hex, as on spans;
// holder, where one is known; waited, held, queue, token, attempt, cause, leases and error, where
// they apply. Records of parked tasks have tasks (the number of parked tasks of the key) and oldest
// (the age of the oldest). parked also has before, again and delay, and unparked has parked, see
// guard.Parked and guard.Unparked. A record with holder also has locker, the UUID of the Locker that
// made the call, and holder_locker, that of the holder while its hold goes on. If they are equal,
// the holder is a call of the same process.
//
// The records of a call are logged with its ctx, so a slog.Handler that adds trace IDs finds them
// there. The key itself is written only with [Options.ExposeRawKeys]: keys often name people or
// accounts. An error is written as its text, in which the digest replaces the key. If the key is
// not known here, only the class of the error is written.
package slogobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	burst  = 10          // records of one message and name that are written in one window
	window = time.Second // of burst
	short  = 4           // a key of fewer bytes is replaced in a text only where it is quoted
)

// Options of an Observer. The zero value is ready to use.
type Options struct {
	// ExposeRawKeys writes the key itself, as key, instead of key_digest. Default: only the digest.
	ExposeRawKeys bool
}

// New returns an Observer for [lockcore.Options] that writes the records of the package's documentation to l. nil is
// slog.Default() at the time of the call. One serves any number of Lockers.
func New(l *slog.Logger, o Options) lockcore.Observer {
	if l == nil {
		l = slog.Default()
	}
	return &observer{log: l, rawKeys: o.ExposeRawKeys, seen: map[line]*count{}}
}

type observer struct {
	log     *slog.Logger
	rawKeys bool

	mu   sync.Mutex // guards seen
	seen map[line]*count
}

// line is what the limit on records counts by.
type line struct{ message, name string }

type count struct {
	since               time.Time
	written, suppressed int
}

// attemptKey contains the observer, so two Observers on one Locker (lockcore.Join) each find their own attempt.
type attemptKey struct{ *observer }

// Start stores the attempt in ctx for the events.
func (o *observer) Start(ctx context.Context, a lockcore.Acquisition) context.Context {
	return context.WithValue(ctx, attemptKey{o}, &a)
}

// Traceparent returns "": a logger has no trace context.
func (o *observer) Traceparent(context.Context) string { return "" }

// Event writes at most one record.
func (o *observer) Event(ctx context.Context, e lockcore.Event) {
	a, _ := ctx.Value(attemptKey{o}).(*lockcore.Acquisition)
	switch e := e.(type) {
	case guard.ConflictLost:
		o.write(ctx, nil, slog.LevelError, "job lost to a conflict", slog.String("name", e.Name), holder(nil, e.Holder))
	case guard.NoKey:
		o.write(ctx, nil, slog.LevelWarn, "no key or limit", slog.String("name", e.Name))
	case guard.PayloadDiffers:
		o.write(ctx, &lockcore.Acquisition{Kind: lockcore.KindOnce, Name: e.Name, Key: e.Key}, slog.LevelWarn, "another payload")
	case guard.TickAbandoned:
		o.write(ctx, &lockcore.Acquisition{Kind: lockcore.KindOnce, Name: e.Name, Key: e.Key}, slog.LevelError, "tick abandoned", holder(nil, e.Holder))
	case guard.Parked:
		o.write(ctx, &lockcore.Acquisition{Kind: e.Kind, Name: e.Name, Key: e.Key}, slog.LevelDebug, "parked",
			slog.Bool("again", e.Again), slog.Int("before", e.Before), slog.Int("tasks", e.Count), slog.Duration("oldest", e.Oldest), slog.Duration("delay", e.Delay))
	case guard.Unparked:
		o.write(ctx, &lockcore.Acquisition{Kind: e.Kind, Name: e.Name, Key: e.Key}, slog.LevelDebug, "unparked",
			slog.Duration("parked", e.Parked), slog.Int("tasks", e.Count), slog.Duration("oldest", e.Oldest))
	case lockcore.CleanupFailed:
		o.write(ctx, nil, slog.LevelWarn, "cleanup failed", slog.Int("leases", e.N), o.problem(nil, e.Err))
	case lockcore.Misconfigured:
		o.write(ctx, nil, slog.LevelError, "misconfigured", slog.String("problem", e.Problem))
	case lockcore.BadRecord:
		o.write(ctx, a, slog.LevelError, "record does not decode", o.problem(a, e.Err))
	default:
		if a != nil { // else another Observer has started it
			o.ofAttempt(ctx, a, e)
		}
	}
}

func (o *observer) ofAttempt(ctx context.Context, a *lockcore.Acquisition, e lockcore.Event) {
	switch e := e.(type) {
	case lockcore.Waiting:
		o.write(ctx, a, slog.LevelDebug, "waiting", slog.Int("queue", e.Queue), holder(a, e.Holder))
	case lockcore.Granted:
		level, message := slog.LevelDebug, "granted"
		if e.Abandoned && a.Kind == lockcore.KindOnce { // with an exclusive key it means a crash, but no work is half recorded
			level, message = slog.LevelWarn, "took over"
		}
		o.write(ctx, a, level, message, slog.Duration("waited", e.Waited), slog.Int64("token", e.Token), slog.Int("attempt", e.Attempt))
	case lockcore.Refused:
		o.refused(ctx, a, e)
	case lockcore.Replayed:
		o.write(ctx, a, slog.LevelDebug, "replayed", slog.Duration("waited", e.Waited), slog.Int("attempt", e.Attempt))
	case lockcore.RenewFailed:
		o.write(ctx, a, slog.LevelWarn, "renewal failed", o.problem(a, e.Err))
	case lockcore.Lost:
		level, message := slog.LevelWarn, "lease ended early"
		if errors.Is(e.Cause, lockcore.ErrLost) {
			level, message = slog.LevelError, "lease lost"
		}
		o.write(ctx, a, level, message, slog.String("cause", class(e.Cause)))
	case lockcore.Overrun:
		o.write(ctx, a, slog.LevelWarn, "handler ignores its context", slog.String("cause", class(e.Cause)))
	case lockcore.Released:
		o.released(ctx, a, e)
	case lockcore.CompletionFailed:
		o.write(ctx, a, slog.LevelError, "record not stored", o.problem(a, e.Err))
	case lockcore.CompletionStored:
		o.write(ctx, a, slog.LevelInfo, "record stored late")
	}
}

func (o *observer) refused(ctx context.Context, a *lockcore.Acquisition, e lockcore.Refused) {
	why := class(e.Err)
	if why == "lost" || why == "revoked" { // only of Adopt
		why = "bad_ticket"
	}
	attrs := []slog.Attr{slog.String("outcome", why), slog.Duration("waited", e.Waited)}
	level := slog.LevelDebug
	switch why {
	case "busy", "closed":
		level = slog.LevelInfo
	case "mismatch":
		level = slog.LevelWarn
	case "abandoned", "unavailable", "bad_record":
		level = slog.LevelError
	}
	if why == "unavailable" || why == "bad_record" {
		attrs = append(attrs, o.problem(a, e.Err))
	}
	var busy *lockcore.BusyError
	var abandoned *lockcore.AbandonedError
	switch {
	case errors.As(e.Err, &busy):
		attrs = append(attrs, slog.Int("queue", busy.Queue), holder(a, busy.Holder))
	case errors.As(e.Err, &abandoned):
		attrs = append(attrs, holder(a, abandoned.Holder))
	}
	o.write(ctx, a, level, "refused", attrs...)
}

// released writes what no other event reports: Lost and CompletionFailed have their own records.
func (o *observer) released(ctx context.Context, a *lockcore.Acquisition, e lockcore.Released) {
	level, message := slog.LevelDebug, "released"
	attrs := []slog.Attr{slog.Duration("held", e.Held), slog.Int("renewals", e.Renewals)}
	switch {
	case e.HandedOver:
		message = "handed over"
	case e.Lost != nil:
		attrs = append(attrs, slog.String("cause", class(e.Lost)))
	case e.Abandoned:
		level, message = slog.LevelError, "outcome unknown"
	case e.Failed != nil:
		message = "handler failed"
		attrs = append(attrs, slog.String("error_class", class(e.Failed)))
	case e.Err != nil && !e.Completed:
		level, message = slog.LevelInfo, "release failed"
		attrs = append(attrs, o.problem(a, e.Err))
	}
	o.write(ctx, a, level, message, attrs...)
}

// write writes a record, unless its level is not enabled or there were too many of its kind.
func (o *observer) write(ctx context.Context, a *lockcore.Acquisition, level slog.Level, message string, attrs ...slog.Attr) {
	if !o.log.Enabled(ctx, level) {
		return
	}
	name := ""
	if a != nil {
		name = a.Name
	} else if len(attrs) > 0 && attrs[0].Key == "name" {
		name = attrs[0].Value.String()
	}
	suppressed, ok := o.admit(line{message, name})
	if !ok {
		return
	}
	if a != nil {
		key := slog.String("key_digest", digest(a.Key))
		if o.rawKeys {
			key = slog.String("key", a.Key)
		}
		if a.Limit != 0 {
			attrs = append([]slog.Attr{slog.Int("limit", a.Limit)}, attrs...)
		}
		attrs = append([]slog.Attr{slog.String("kind", a.Kind.String()), slog.String("name", a.Name), key}, attrs...)
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	o.log.LogAttrs(ctx, level, "holdfast: "+message, attrs...)
}

// admit returns whether a record may be written, and how many of its kind were suppressed since the last one.
func (o *observer) admit(l line) (suppressed int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.seen[l]
	if c == nil {
		c = &count{since: time.Now()}
		o.seen[l] = c
	}
	if time.Since(c.since) >= window {
		c.since, c.written = time.Now(), 0
	}
	if c.written >= burst {
		c.suppressed++
		return 0, false
	}
	c.written++
	suppressed, c.suppressed = c.suppressed, 0
	return suppressed, true
}

// problem returns the attribute for an error: its text without the key, or its class where the key is not known.
func (o *observer) problem(a *lockcore.Acquisition, err error) slog.Attr {
	switch {
	case err == nil:
		return slog.String("error", "")
	case o.rawKeys:
		return slog.String("error", err.Error())
	case a == nil:
		return slog.String("error", class(err))
	}
	stand := "key " + digest(a.Key)
	text := strings.ReplaceAll(err.Error(), strconv.Quote(a.Key), stand)
	if len(a.Key) >= short {
		text = strings.ReplaceAll(text, a.Key, stand)
	}
	return slog.String("error", text)
}

// holder returns the attributes for a holder, as a group without a name: a slog.Handler writes them
// without nesting, and omits an empty one.
func holder(a *lockcore.Acquisition, h lockcore.Holder) slog.Attr {
	if h == (lockcore.Holder{}) {
		return slog.Attr{}
	}
	attrs := []slog.Attr{slog.String("holder", h.String())}
	if h.Locker != "" {
		attrs = append(attrs, slog.String("holder_locker", h.Locker))
	}
	if a != nil && a.Locker != "" {
		attrs = append(attrs, slog.String("locker", a.Locker))
	}
	return slog.GroupAttrs("", attrs...)
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// class returns a word for err, the same as package tracing.
func class(err error) string {
	for _, c := range []struct {
		err  error
		name string
	}{
		{lockcore.ErrBusy, "busy"},
		{lockcore.ErrMismatch, "mismatch"},
		{lockcore.ErrAbandoned, "abandoned"},
		{lockcore.ErrClosed, "closed"},
		{lockcore.ErrRecord, "bad_record"},
		{lockcore.ErrGivenUp, "given_up"},
		{lockcore.ErrMaxHold, "max_hold"},
		{lockcore.ErrStalled, "stalled"},
		{lockcore.ErrRevoked, "revoked"},
		{lockcore.ErrLost, "lost"},
		{lockcore.ErrTicket, "bad_ticket"},
		{context.Canceled, "canceled"}, // before unavailable: a caller that canceled a command is no outage
		{lockcore.ErrUnavailable, "unavailable"},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	if errors.Is(err, lockcore.ErrNotRun) {
		return "canceled"
	}
	return "error"
}
