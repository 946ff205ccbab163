// Package eventlog writes events as records of log/slog: all of them for package slogobs, and the
// warnings of a Locker without an Observer.
package eventlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
)

const (
	burst  = 10          // greatest number of records of one message and name in a window
	window = time.Second // of burst
	short  = 4           // a key of fewer bytes is replaced in a text only if it is quoted
)

// Options are the options of [New].
type Options struct {
	Logger  *slog.Logger // nil: the slog.Default() of the time of each record
	RawKeys bool         // write keys, and not their digests
	// Warnings writes each record as a warning, and each message at most once a second, whatever its
	// name is. Those about a server are limited for each server.
	Warnings bool
}

// Set by package lockcore, whose errors they know.
var (
	// Class returns the class of an error, with the words of package tracing.
	Class = func(error) string { return "error" }
	// Holder returns the holder in an error, and the length of the queue or -1. ok is false if the
	// error has none.
	Holder = func(error) (h event.Holder, queue int, ok bool) { return h, -1, false }
)

// Log writes records.
type Log struct {
	o Options

	mu   sync.Mutex // guards seen
	seen map[line]*count
}

// New returns a Log.
func New(o Options) *Log { return &Log{o: o, seen: map[line]*count{}} }

// line identifies the records that have a common limit.
type line struct{ message, name string }

type count struct {
	since               time.Time
	written, suppressed int
}

// Event writes at most one record. a is the call of e, or nil if it is not known.
func (o *Log) Event(ctx context.Context, a *event.Acquisition, e event.Event) {
	switch e := e.(type) {
	case event.ConflictLost:
		o.write(ctx, nil, slog.LevelError, "job lost to a conflict", slog.String("name", e.Name), holder(nil, e.Holder))
	case event.NoKey:
		o.write(ctx, nil, slog.LevelWarn, "no key or limit", slog.String("name", e.Name))
	case event.PayloadDiffers:
		o.write(ctx, &event.Acquisition{Kind: event.KindOnce, Name: e.Name, Key: e.Key}, slog.LevelWarn, "another payload")
	case event.TickAbandoned:
		o.write(ctx, &event.Acquisition{Kind: event.KindOnce, Name: e.Name, Key: e.Key}, slog.LevelError, "tick abandoned", holder(nil, e.Holder))
	case event.Parked:
		o.write(ctx, &event.Acquisition{Kind: e.Kind, Name: e.Name, Key: e.Key}, slog.LevelDebug, "parked",
			slog.Bool("again", e.Again), slog.Int("before", e.Before), slog.Int("tasks", e.Count), slog.Duration("oldest", e.Oldest), slog.Duration("delay", e.Delay))
	case event.Unparked:
		o.write(ctx, &event.Acquisition{Kind: e.Kind, Name: e.Name, Key: e.Key}, slog.LevelDebug, "unparked",
			slog.Duration("parked", e.Parked), slog.Int("tasks", e.Count), slog.Duration("oldest", e.Oldest))
	case event.Replaced:
		o.write(ctx, &event.Acquisition{Kind: event.KindExclusive, Name: e.Name, Key: e.Key}, slog.LevelDebug, "replaced")
	case event.RerunSkipped:
		o.write(ctx, &event.Acquisition{Kind: e.Kind, Name: e.Name, Key: e.Key}, slog.LevelWarn, "rerun skipped", slog.Duration("completed", e.Completed))
	case event.CleanupFailed:
		o.write(ctx, nil, slog.LevelWarn, "cleanup failed", slog.Int("leases", e.N), o.problem(nil, e.Err))
	case event.Paused:
		message := "paused"
		if e.For == 0 {
			message = "pause ended"
		}
		o.write(ctx, &event.Acquisition{Kind: event.KindExclusive, Key: e.Key}, slog.LevelInfo, message, slog.Duration("for", e.For), slog.String("reason", e.Reason))
	case event.Restricted:
		message := "restricted"
		if e.For == 0 {
			message = "restriction ended"
		}
		o.write(ctx, &event.Acquisition{Kind: event.KindExclusive, Key: e.Key}, slog.LevelInfo, message,
			slog.Int("limit", e.Limit), slog.Int("n", e.N), slog.Duration("per", e.Per), slog.Int("burst", e.Burst), slog.Duration("for", e.For), slog.String("reason", e.Reason))
	case event.ServerFailed:
		o.write(ctx, nil, slog.LevelWarn, "server failed", slog.String("server", e.Server), o.failure(e.Err))
	case event.ServerRecovered:
		o.write(ctx, nil, slog.LevelInfo, "server replies again", slog.String("server", e.Server))
	case event.ForceCleared:
		o.write(ctx, &event.Acquisition{Kind: e.Kind, Key: e.Key}, slog.LevelWarn, "lease ended by force",
			holder(nil, e.Holder), slog.Int64("token", e.Token), slog.Bool("even_alive", e.EvenAlive))
	case event.Misconfigured:
		o.write(ctx, nil, slog.LevelError, "misconfigured", slog.String("problem", e.Problem))
	case event.BadRecord:
		o.write(ctx, a, slog.LevelError, "record does not decode", o.problem(a, e.Err))
	default:
		if a != nil { // else another Observer has started the call
			o.ofCall(ctx, a, e)
		}
	}
}

func (o *Log) ofCall(ctx context.Context, a *event.Acquisition, e event.Event) {
	switch e := e.(type) {
	case event.Waiting:
		o.write(ctx, a, slog.LevelDebug, "waiting", slog.Int("queue", e.Queue), holder(a, e.Holder))
	case event.Granted:
		level, message := slog.LevelDebug, "granted"
		if e.Abandoned && a.Kind == event.KindOnce { // the work of an exclusive key has no record
			level, message = slog.LevelWarn, "took over"
		}
		o.write(ctx, a, level, message, slog.Duration("waited", e.Waited), slog.Int64("token", e.Token), slog.Int("attempt", e.Attempt))
	case event.Refused:
		o.refused(ctx, a, e)
	case event.Admitted:
		o.write(ctx, a, slog.LevelDebug, "admitted", slog.Duration("waited", e.Waited))
	case event.Replayed:
		o.write(ctx, a, slog.LevelDebug, "replayed", slog.Duration("waited", e.Waited), slog.Int("attempt", e.Attempt))
	case event.RenewFailed:
		o.write(ctx, a, slog.LevelWarn, "renewal failed", o.problem(a, e.Err))
	case event.Lost:
		level, message := slog.LevelWarn, "lease ended early"
		if Class(e.Cause) == "lost" {
			level, message = slog.LevelError, "lease lost"
		}
		o.write(ctx, a, level, message, slog.String("cause", Class(e.Cause)))
	case event.Overrun:
		o.write(ctx, a, slog.LevelWarn, "handler ignores its context", slog.String("cause", Class(e.Cause)))
	case event.Released:
		o.released(ctx, a, e)
	case event.CompletionFailed:
		o.write(ctx, a, slog.LevelError, "record not stored", o.problem(a, e.Err))
	case event.CompletionStored:
		o.write(ctx, a, slog.LevelInfo, "record stored late")
	}
}

func (o *Log) refused(ctx context.Context, a *event.Acquisition, e event.Refused) {
	why := Class(e.Err)
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
	case "abandoned", "unavailable", "bad_record", "unsupported":
		level = slog.LevelError
	}
	if why == "unavailable" || why == "bad_record" || why == "unsupported" {
		attrs = append(attrs, o.problem(a, e.Err))
	}
	if h, queue, ok := Holder(e.Err); ok {
		if queue >= 0 {
			attrs = append(attrs, slog.Int("queue", queue))
		}
		attrs = append(attrs, holder(a, h))
	}
	o.write(ctx, a, level, "refused", attrs...)
}

// released writes the record of a Released. A loss and a failed completion have records of their
// own events, so here they do not raise the level.
func (o *Log) released(ctx context.Context, a *event.Acquisition, e event.Released) {
	level, message := slog.LevelDebug, "released"
	attrs := []slog.Attr{slog.Duration("held", e.Held), slog.Int("renewals", e.Renewals)}
	switch {
	case e.Transferred:
		message = "transferred"
	case e.Lost != nil:
		attrs = append(attrs, slog.String("cause", Class(e.Lost)))
	case e.Abandoned:
		level, message = slog.LevelError, "outcome unknown"
	case e.Failed != nil:
		if Class(e.Failed) != "busy" || e.Completed { // else a guard inside found its key busy
			message = "handler failed"
		}
		attrs = append(attrs, slog.String("error_class", Class(e.Failed)))
	case e.Err != nil && !e.Completed:
		level, message = slog.LevelInfo, "release failed"
		attrs = append(attrs, o.problem(a, e.Err))
	}
	o.write(ctx, a, level, message, attrs...)
}

// write writes a record, unless its level is not enabled or admit refuses it.
func (o *Log) write(ctx context.Context, a *event.Acquisition, level slog.Level, message string, attrs ...slog.Attr) {
	log := o.o.Logger
	if log == nil {
		log = slog.Default()
	}
	if o.o.Warnings {
		level = slog.LevelWarn
	}
	if !log.Enabled(ctx, level) {
		return
	}
	name := ""
	if a != nil {
		name = a.Name
	} else if len(attrs) > 0 && attrs[0].Key == "name" {
		name = attrs[0].Value.String()
	}
	switch {
	case len(attrs) > 0 && attrs[0].Key == "server":
		name = attrs[0].Value.String()
	case o.o.Warnings:
		name = ""
	}
	suppressed, ok := o.admit(line{message, name})
	if !ok {
		return
	}
	if a != nil {
		key := slog.String("key_digest", digest(a.Key))
		if o.o.RawKeys {
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
	log.LogAttrs(ctx, level, "holdfast: "+message, attrs...)
}

// admit reports whether a record of l may be written. suppressed is the number of records of l that
// were not written since the last one that was.
func (o *Log) admit(l line) (suppressed int, ok bool) {
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
	if c.written >= burst || o.o.Warnings && c.written > 0 {
		c.suppressed++
		return 0, false
	}
	c.written++
	suppressed, c.suppressed = c.suppressed, 0
	return suppressed, true
}

// problem returns the attribute for an error: its text without the key, or its class if the key is
// not known.
func (o *Log) problem(a *event.Acquisition, err error) slog.Attr {
	switch {
	case err == nil:
		return slog.String("error", "")
	case o.o.RawKeys:
		return slog.String("error", err.Error())
	case a == nil:
		return slog.String("error", Class(err))
	}
	stand := "key " + digest(a.Key)
	text := strings.ReplaceAll(err.Error(), strconv.Quote(a.Key), stand)
	if len(a.Key) >= short {
		text = strings.ReplaceAll(text, a.Key, stand)
	}
	return slog.String("error", text)
}

// failure returns the attribute for an error of a server: the part that has no key, or its class.
func (o *Log) failure(err error) slog.Attr {
	if err != nil && (o.o.RawKeys || Class(err) == "unsupported") {
		return slog.String("error", err.Error())
	}
	if of, is := errors.AsType[*net.OpError](err); is {
		return slog.String("error", of.Error())
	}
	if of, is := errors.AsType[redisError](err); is {
		code, _, _ := strings.Cut(of.Error(), " ")
		return slog.String("error", code)
	}
	return o.problem(nil, err)
}

// redisError is an error reply of Redis. It begins with a code, such as NOAUTH.
type redisError interface {
	error
	RedisError()
}

// holder returns the attributes for a holder, as a group without a name: a slog.Handler writes them
// without nesting, and omits an empty one.
func holder(a *event.Acquisition, h event.Holder) slog.Attr {
	if h == (event.Holder{}) {
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
