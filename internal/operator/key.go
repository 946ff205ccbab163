// Package operator is what operators see and do: the facts of a key in words and in JSON, the texts that
// ask for a confirmation, and why a task waits. The command holdfast and package inspect share it, so that
// both say the same.
package operator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The texts before a confirmation.
const (
	revokeText = `%s is held by %s for %s.
Revoking asks the handler to stop: its ctx is canceled with the cause ErrRevoked at once, but not
before the lease is a second old. The key is free when the handler has returned, at the latest in %s.
A handler that ignores its ctx runs on next to the next call: then end its process, do not revoke.
`
	coolingText = `Clearing frees this key before the end of MinHold: the next call runs at once.
`
	clearText = `This key is %s. Clearing forgets that, so the next call runs the handler. The run may have had its effect, so check that first.
If a run has begun or completed since it was shown, the key is not cleared.
`
)

// RevokeText says what a revocation of a held or shared key does.
func (k *Key) RevokeText() string {
	text := fmt.Sprintf(revokeText, OneLine(k.Key), Holder(k.Holder), Age(k.HeldFor), Age(k.Remaining))
	if k.State == lockcore.StateShared {
		text = fmt.Sprintf("%s is shared: revoking it ends all its shares, of weight %d together. The last one was granted to:\n", OneLine(k.Key), k.Weights) + text
	}
	return text
}

// ClearText says what a clear of a key does that is not held.
func (k *Key) ClearText() string {
	if k.State == lockcore.StateCooling {
		return coolingText
	}
	return fmt.Sprintf(clearText, k.State)
}

const maxFailure = 80 // bytes of a failure's text in StateText

// Key is a key and its state.
type Key struct {
	doctor.Entry
	Result *Result // of a done key
}

// Inspect returns the state of one key. If data is true, its result has the data of the record.
func Inspect(ctx context.Context, l *lockcore.Locker, kind event.Kind, key string, data bool) (k Key, err error) {
	k.Kind, k.Key = kind, key
	if k.Holding, err = l.Inspect(ctx, kind, key); k.Record != nil {
		k.Result = ResultOf(k.Record.Data, data)
	}
	return k, err
}

// Fact is a line of what is known of a key. Its texts are in one line, and have no characters that a
// terminal does not print.
type Fact struct{ Name, Value string }

// Facts returns what is known of a key, in the order in which an operator needs it.
func (k *Key) Facts() (facts []Fact) {
	line := func(name string, v any) { facts = append(facts, Fact{name, fmt.Sprint(v)}) }
	line("key", OneLine(k.Key))
	line("kind", k.Kind)
	line("state", k.StateText())
	if k.State != lockcore.StateFree || k.NotReleased {
		line("holder", Holder(k.Holder))
		if k.Holder.Locker != "" {
			line("locker", OneLine(k.Holder.Locker))
		}
		if k.Holder.Traceparent != "" {
			line("trace", OneLine(k.Holder.Traceparent))
		}
		switch k.State {
		case lockcore.StateShared: // the holder is the one of the share that was granted last
			line("shared for", Age(k.HeldFor))
		case lockcore.StateHeld:
			line("for", Age(k.HeldFor))
		default:
			line("began", Age(k.HeldFor)+" ago")
		}
	}
	switch {
	case k.Remaining <= 0:
	case k.State == lockcore.StateCooling:
		line("free in", Age(k.Remaining))
	case k.Lease > 0:
		line("lease left", Age(k.Remaining)+" of "+Age(k.Lease))
	default:
		line("lease left", Age(k.Remaining))
	}
	if k.PauseLeft > 0 {
		line("paused for", Age(k.PauseLeft)+": "+OneLine(k.PauseReason))
	}
	if k.RateFullIn > 0 {
		line("rate", k.RateText())
	}
	if r := k.Restriction; r.For > 0 {
		line("restricted", "to "+Bounds(r)+" for "+Age(r.For)+": "+OneLine(r.Reason))
	}
	switch {
	case k.Transferred:
		line("renewed", "no: transferred with a ticket, and not adopted yet")
	case k.Fixed:
		line("renewed", "no")
	case k.State == lockcore.StateHeld:
		line("renewed", Age(max(k.Lease-k.Remaining, 1))+" ago")
	}
	if k.KeepLeft > 0 && k.State != lockcore.StateFree {
		line("remembered for", Age(k.KeepLeft))
	}
	if k.Attempt > 0 {
		line("runs", k.Attempt)
	}
	line("token", k.Token)
	line("waiting", k.WaitingText())
	if k.State == lockcore.StateShared {
		line("weight of its shares", k.Weights)
	}
	for i := range k.Shares {
		line("share", shareText(&k.Shares[i]))
	}
	if k.Parked > 0 {
		line("tasks parked", k.Parked)
		line("oldest parked for", Age(k.ParkedFor))
		line("oldest parked", ParkedTaskOf(k.OldestParked))
	}
	if k.LatestAge > 0 {
		line("latest", k.latestText())
	}
	if r := k.Result; r != nil {
		if r.Size != nil {
			line("result", fmt.Sprintf("%d bytes, codec %s", *r.Size, OneLine(r.Codec)))
		}
		if r.Error != "" {
			line("error", OneLine(r.Error))
		}
		switch {
		case r.HTTP != nil: // the caller describes it
		case r.Text != "":
			line("text", OneLine(r.Text))
		case r.Data != nil:
			line("text", strconv.QuoteToASCII(string(r.Data)))
		}
	}
	return facts
}

// latestText says which task of Latest is the newest, and whether a run has covered it.
func (k *Key) latestText() string {
	if k.LatestTask == "" {
		return "done: a run has covered all that came until " + Age(k.LatestAge) + " ago"
	}
	return "not done: task " + ParkedTaskOf(k.LatestTask).String() + ", came " + Age(k.LatestAge) + " ago; older ones end without a run"
}

// shareText describes a share in one line.
func shareText(s *lockcore.Share) string {
	limit := "no limit"
	if s.Limit.N != lockcore.Unlimited {
		limit = fmt.Sprintf("weight %d of %d", max(s.Limit.Weight, 1), s.Limit.N)
	}
	if s.Cooling {
		return fmt.Sprintf("%s, released, keeps its place for %s", limit, Age(s.Remaining))
	}
	return fmt.Sprintf("%s, by %s for %s, lease left %s", limit, Holder(s.Holder), Age(s.HeldFor), Age(s.Remaining))
}

// weightText returns the sum of the weights of a shared key, and the limit if all shares have the
// same.
func (k *Key) weightText() string {
	if len(k.Shares) == 0 {
		return fmt.Sprintf("weight %d", k.Weights)
	}
	limit := k.Shares[0].Limit.N
	switch {
	case slices.ContainsFunc(k.Shares, func(s lockcore.Share) bool { return s.Limit.N != limit }):
		return fmt.Sprintf("weight %d", k.Weights)
	case limit == lockcore.Unlimited:
		return fmt.Sprintf("weight %d, no limit", k.Weights)
	case k.full():
		return fmt.Sprintf("weight %d of %d, full", k.Weights, limit)
	}
	return fmt.Sprintf("weight %d of %d", k.Weights, limit)
}

// full reports whether the weights of a shared key reach the limit of each share.
func (k *Key) full() bool {
	return len(k.Shares) > 0 && !slices.ContainsFunc(k.Shares, func(s lockcore.Share) bool {
		return s.Limit.N == lockcore.Unlimited || k.Weights < s.Limit.N
	})
}

// StateText returns the state of a key in words.
func (k *Key) StateText() string {
	switch {
	case k.State == lockcore.StateShared && k.Revoked:
		return fmt.Sprintf("shared (%s), revoked", k.weightText())
	case k.State == lockcore.StateShared:
		return fmt.Sprintf("shared (%s)", k.weightText())
	case k.State == lockcore.StateFree && k.NotReleased:
		return "free (last hold was not released; it began " + Age(k.HeldFor) + " ago)"
	case k.State == lockcore.StateDone && k.Result != nil:
		switch k.Result.Outcome {
		case Succeeded:
			return "done (ok)"
		case Failed:
			text := k.Result.Error
			if len(text) > maxFailure {
				text = strings.ToValidUTF8(text[:maxFailure], "") + "…"
			}
			return "done (failed: " + strconv.Quote(text) + ")"
		case NotKept:
			return "done (result not kept)"
		}
		return "done (record does not decode)"
	case k.Revoked:
		return string(k.State) + ", revoked"
	case k.State == lockcore.StateFree && k.NextTurnIn > 0:
		return "throttled"
	case k.State == lockcore.StateFree && k.RateFullIn > 0:
		return "free, rate in use"
	}
	return string(k.State)
}

// WaitingText describes the calls that wait in the processes of the remote queue.
func (k *Key) WaitingText() string {
	if k.Queue == 0 {
		return "0"
	}
	text := counted(k.WaitingCalls, "call", "s") + " in " + counted(k.Queue, "process", "es")
	if k.OldestWait > 0 {
		text += ", oldest " + Age(k.OldestWait)
	}
	return text
}

func counted(n int, of, plural string) string {
	if n != 1 {
		of += plural
	}
	return fmt.Sprintf("%d %s", n, of)
}

// RateText says how much of the rate of a key is used.
func (k *Key) RateText() string {
	if k.NextTurnIn > 0 {
		return "used up: the next call begins in " + Age(k.NextTurnIn)
	}
	return "in use: full again in " + Age(k.RateFullIn)
}

// BoundText says that an operator, a 429 or the rate of a key has stopped or slowed its calls, as an addition to
// StateText. Facts say more.
func (k *Key) BoundText() (text string) {
	if k.PauseLeft > 0 {
		text = ", paused"
	}
	if k.Restriction.For > 0 {
		text += ", restricted"
	}
	if k.NextTurnIn > 0 {
		text += ", next call in " + Age(k.NextTurnIn)
	}
	return text
}

// Holder returns a holder in one line, or "-" for none.
func Holder(h event.Holder) string {
	if h == (event.Holder{}) {
		return "-"
	}
	return OneLine(h.String())
}

// Age returns a rounded duration, or "-" for none.
func Age(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// OneLine makes foreign text harmless to a terminal: it escapes characters that are not printable.
func OneLine(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return fmt.Sprintf("%+q", s)
	}
	return s
}
