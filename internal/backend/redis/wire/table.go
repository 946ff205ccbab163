package wire

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file is the table of the scripts. Below each script is the function that makes its command:
// it has the values of the arguments in the order of their names. Durations are in µs, except those
// of PEXPIRE, whose names end with _ms.

// Sender has the arguments that are the same in all commands of a backend.
type Sender struct {
	Locker   string // id of the Locker
	Channels string // prefix of the channels of notifications
	Single   bool   // PUBLISH counts all receivers
}

// The arguments of commands point to these values, which never change.
var (
	no, yes     = "0", "1"
	queueKeep   = millis(backend.QueueTTL)
	reservation = micros(backend.ReserveTime)

	modeExclusive, modeAtLeastOnce, modeAtMostOnce = "exclusive", "least", "most"
)

// Acquire requests a key, see backend.AcquireRequest.
var Acquire = script("acquire", []KeyName{Hash, Queue},
	"request", "locker", "lease", "enqueue", "holder", "retention_ms", "fingerprint", "mode", "queue_ms", "plain", "floor", "waits").acked(0, "lease")

// Room is memory for a command of acquire.lua or release.lua and its values. A command in it points
// to them, so it must not be reused before the last reader of the command has ended.
type Room struct {
	id, holder, fingerprint                  string
	lease, token, retention, cooldown, floor int64
	list                                     [17]any
}

// Acquire requests a key without shares. plain permits a plain hold: no duplicate of the command may
// exist.
func (s *Sender) Acquire(r *backend.AcquireRequest, plain bool, c *Room) Command {
	plain = plain && r.Floor == 0
	c.id, c.holder, c.fingerprint, c.lease, c.retention, c.floor = r.ID, r.Holder, r.Fingerprint, micros(r.Lease), millis(r.Retention), r.Floor
	c.list = [17]any{
		nil, nil, 2, &r.Key.Stored[0], &r.Key.Stored[1],
		&c.id, &s.Locker, &c.lease, flag(r.Queue), &c.holder, &c.retention, &c.fingerprint, mode(r), &queueKeep, flag(plain), &c.floor,
	}
	return Command{Script: Acquire, List: c.list[:16], GrantMany: plain && r.Key.Kind == backend.KindExclusive}.withWaits(r)
}

// withWaits adds the last argument, with which a process says how many of its calls wait. Most requests
// do not have it.
func (c Command) withWaits(r *backend.AcquireRequest) Command {
	if w := r.Waits; r.Queue && w.Calls > 0 {
		c.List = append(c.List, fmt.Sprintf("%d %d", w.Calls, micros(w.Oldest)))
	}
	return c
}

func mode(r *backend.AcquireRequest) *string {
	switch {
	case r.Key.Kind == backend.KindExclusive:
		return &modeExclusive
	case r.AtMostOnce:
		return &modeAtMostOnce
	}
	return &modeAtLeastOnce
}

// Renew extends leases, see backend.RenewRequest. It has the arguments once for each key.
var Renew = script("renew", []KeyName{Hash}, "grant_id", "lease", "retention_ms", "handed_off").acked(0, "")

// Renewals divides a batch of requests into commands. A command renews up to per keys without shares
// that follow each other, or one share. keys has the number of keys of each command. In a cluster per
// must be 1, because the keys of a command share a slot.
func Renewals(rs []backend.RenewRequest, per int) (cmds []Command, keys []int) {
	for len(rs) > 0 {
		n := 1
		if rs[0].Share.Limit > 0 {
			cmds = append(cmds, renewShare(&rs[0]))
		} else {
			for n < min(per, len(rs)) && rs[n].Share.Limit == 0 {
				n++
			}
			cmds = append(cmds, renew(rs[:n]))
		}
		keys, rs = append(keys, n), rs[n:]
	}
	return cmds, keys
}

func renew(rs []backend.RenewRequest) Command {
	list := make([]any, firstKey, firstKey+(1+len(Renew.Args))*len(rs))
	list[firstKey-1] = len(rs)
	for i := range rs {
		list = append(list, &rs[i].Key.Stored[0])
	}
	var lease, retention any // boxed once for successive requests with equal values
	var before *backend.RenewRequest
	for i := range rs {
		r := &rs[i]
		if before == nil || r.Lease != before.Lease || r.Retention != before.Retention {
			lease, retention, before = micros(r.Lease), millis(r.Retention), r
		}
		list = append(list, &r.ID, lease, retention, handedOff(r))
	}
	return Command{Script: Renew, List: list}
}

// handedOff returns what renew.lua stores for a hold that began since the last renewal, or "".
func handedOff(r *backend.RenewRequest) string {
	if r.Token == 0 {
		return ""
	}
	return strconv.FormatInt(r.Token, 10) + " " + r.Holder
}

// Release ends a hold, see backend.ReleaseRequest.
var Release = script("release", []KeyName{Hash, Queue},
	"grant_id", "token", "abandon", "retention_ms", "repeated", "reservation", "channels", "counts_all", "cooldown", "plain")

// Release ends a hold of a key without shares. cooldown is the rest of MinHold.
func (s *Sender) Release(r *backend.ReleaseRequest, cooldown time.Duration, c *Room) Command {
	c.id, c.token, c.retention, c.cooldown = r.ID, r.Token, millis(cooldown+r.Retention), micros(cooldown)
	plain := r.Plain && !r.Repeated && !r.Abandon && cooldown == 0
	c.list = [17]any{
		nil, nil, 2, &r.Key.Stored[0], &r.Key.Stored[1],
		&c.id, &c.token, flag(r.Abandon), &c.retention, flag(r.Repeated), &reservation, &s.Channels, flag(s.Single), &c.cooldown, flag(plain),
	}
	return Command{Script: Release, List: c.list[:15], GrantMany: plain && r.Key.Kind == backend.KindExclusive}
}

// Rotate ends a hold and requests the key again, see backend.ReleaseRequest.Next.
var Rotate = script("rotate", []KeyName{Hash, Queue},
	"grant_id", "token", "keep_ms", "repeated", "reservation", "channels", "counts_all",
	"request", "locker", "lease", "enqueue", "holder", "retention_ms", "queue_ms", "floor", "waits").acked(1, "lease")

// Rotate ends a hold and requests the key again for r.Next.
func (s *Sender) Rotate(r *backend.ReleaseRequest) Command {
	return Rotate.command(r.Key, r.ID, r.Token, millis(r.Retention), *flag(r.Repeated), reservation, s.Channels, *flag(s.Single),
		r.Next.ID, s.Locker, micros(r.Next.Lease), *flag(r.Next.Queue), r.Next.Holder, millis(r.Next.Retention), queueKeep, r.Next.Floor).withWaits(r.Next)
}

// Leave withdraws a request, see backend.WithdrawRequest.
var Leave = script("leave", []KeyName{Hash, Queue, Shares},
	"request", "locker", "keep_ms", "repeated", "reservation", "channels", "counts_all", "wake")

// Withdraw withdraws a request, for a share too.
func (s *Sender) Withdraw(r *backend.WithdrawRequest) Command {
	if !r.Share.Alone() {
		return ReleaseShare.command(r.Key, r.Share.Text(r.ID), s.Locker, millis(r.Retention), *flag(r.Repeated), reservation,
			s.Channels, *flag(s.Single), 0, encodeWake(r.Key))
	}
	return Leave.command(r.Key, r.ID, s.Locker, millis(r.Retention), *flag(r.Repeated), reservation, s.Channels, *flag(s.Single), encodeWake(r.Key))
}

// Complete ends a hold and stores its record, see backend.CompleteRequest.
var Complete = script("complete", []KeyName{Hash, Queue}, "grant_id", "record", "keep_ms", "token", "channels", "repeated", "plain").acked(0, "")

// Complete ends a hold and stores its record.
func (s *Sender) Complete(r *backend.CompleteRequest) Command {
	return Complete.command(r.Key, r.ID, r.Record, millis(r.Keep), r.Token, s.Channels, *flag(r.Repeated), *flag(r.Plain && !r.Repeated))
}

// Adopt passes a hold to a new grant, see backend.AdoptRequest.
var Adopt = script("adopt", []KeyName{Hash}, "from", "request", "locker", "lease", "holder", "retention_ms").acked(0, "lease")

// Adopt passes a hold to a new grant.
func (s *Sender) Adopt(r *backend.AdoptRequest) Command {
	return Adopt.command(r.Key, r.From, r.ID, s.Locker, micros(r.Lease), r.Holder, millis(r.Retention))
}

// Interim stores an interim answer, see backend.InterimRequest.
var Interim = script("interim", []KeyName{Hash, Queue}, "grant_id", "attempt", "answer", "channels")

// Interim stores an interim answer.
func (s *Sender) Interim(r *backend.InterimRequest) Command {
	return Interim.command(r.Key, r.ID, r.Attempt, r.Answer, s.Channels)
}

// Revoke revokes a hold or all shares.
var Revoke = script("revoke", []KeyName{Hash, Shares}, "channels", "id", "from", "skip", "before", "seen")

// RevokeStep is a step of a revocation: how far the notification of the holders of shares got. The
// zero value is the first step.
type RevokeStep struct{ from, skip any }

// Revoke revokes a hold or all shares. id is the same in each step and each repeat, so that none of them
// revokes the next hold.
func (s *Sender) Revoke(r *backend.RevokeRequest, id string, step RevokeStep) Command {
	if step.from == nil {
		step = RevokeStep{"", 0}
	}
	return Revoke.command(r.Key, s.Channels, id, step.from, step.skip, r.Before, r.Seen)
}

// Pause lets no request for a key be granted for a time.
var Pause = script("pause", []KeyName{Hash, Queue, Shares}, "length", "reason", "id", "reservation", "channels", "counts_all", "wake")

// Pause lets no request for a key be granted for d. id is the same in each repeat.
func (s *Sender) Pause(k *backend.Key, d time.Duration, reason, id string) Command {
	return Pause.command(k, micros(d), reason, id, reservation, s.Channels, *flag(s.Single), encodeWake(k))
}

// Restrict bounds the terms of the requests for a key for a time.
var Restrict = script("restrict", []KeyName{Hash, Queue, Shares, Flow}, "length", "text", "id", "reservation", "channels", "counts_all", "wake")

// Restrict bounds the terms of the requests for a key for r.For. id is the same in each repeat.
func (s *Sender) Restrict(k *backend.Key, r backend.Restriction, id string) Command {
	return Restrict.command(k, micros(r.For), RestrictionText(r), id, reservation, s.Channels, *flag(s.Single), encodeWake(k))
}

// RestrictionText returns what is stored of a restriction behind its times, see rate.lua.
func RestrictionText(r backend.Restriction) string {
	return fmt.Sprintf("%d %d %d %d %s", r.Limit, r.Rate.N, micros(r.Rate.Per), r.Rate.Burst, r.Reason)
}

// Clear frees a key that is not held, see backend.ClearRequest.
var Clear = script("clear", []KeyName{Hash, Queue, Shares}, "keep_ms", "reservation", "channels", "counts_all", "seen", "seen_done", "id")

// Clear frees a key that is not held. id is the same in each repeat. So a repeat of a completed Clear
// changes nothing, even if the key is in use again.
func (s *Sender) Clear(r *backend.ClearRequest, id string) Command {
	seen, done := "", ""
	switch r.Condition {
	case backend.ClearAlways:
	case backend.ClearIfSame:
		seen, done = strconv.FormatInt(r.Token, 10), *flag(r.Done)
	case backend.ClearIfUnreadable:
		seen = "bad"
	}
	return Clear.command(r.Key, millis(backend.FreeTTL), reservation, s.Channels, *flag(s.Single), seen, done, id)
}

// ForceClear ends the lease of a hold, see backend.ForceClearRequest.
var ForceClear = script("force_clear", []KeyName{Hash, Queue}, "token", "locker", "silent", "channels", "counts_all", "id", "wake")

// ForceClear ends the lease of a hold. id is the same in each repeat.
func (s *Sender) ForceClear(r *backend.ForceClearRequest, id string) Command {
	return ForceClear.command(r.Key, strconv.FormatInt(r.Token, 10), r.Locker, micros(r.Silent), s.Channels, *flag(s.Single), id, encodeWake(r.Key))
}

// Inspect returns the state of a key.
var Inspect = script("inspect", []KeyName{Hash, Queue, Parked, Shares, Flow, Triggers}, "part")

// Inspect returns the state of a key.
func (*Sender) Inspect(k *backend.Key, part backend.RecordPart) Command {
	return Inspect.command(k, int(part))
}

// Park parks an entry, see backend.ParkRequest.
var Park = script("park", []KeyName{Hash, Parked, Woken}, "entry", "most", "keep_ms", "locker", "park_free")

// Park parks an entry.
func (s *Sender) Park(r *backend.ParkRequest) Command {
	return Park.command(r.Key, r.Entry, r.Most, millis(r.Keep), s.Locker, *flag(r.Free))
}

// Unpark removes entries and marks others, see backend.UnparkRequest. After "skips", their number,
// there are the prefixes to skip, then the entries to remove.
var Unpark = script("unpark", []KeyName{Hash, Parked, Woken}, "wanted", "prefix", "fresh", "marked", "skips", "entries")

// Unpark removes entries and marks others.
func (*Sender) Unpark(r *backend.UnparkRequest) Command {
	args := []any{r.Woken, r.Prefix, micros(r.FreshTime()), r.Marked, len(r.Skip)}
	for _, text := range slices.Concat(r.Skip, r.Remove) {
		args = append(args, text)
	}
	return Unpark.command(r.Key, args...)
}

// CallParkingLocker notifies the Locker that parked an entry most recently.
var CallParkingLocker = script("call_parking_locker", []KeyName{Hash}, "channels", "wake")

// CallParkingLocker notifies the Locker that parked an entry most recently.
func (s *Sender) CallParkingLocker(k *backend.Key) Command {
	return CallParkingLocker.command(k, s.Channels, encodeWake(k))
}

// Trigger orders the triggers of a key, see backend.TriggerRequest.
var Trigger = script("trigger", []KeyName{Triggers}, "op", "entry", "own", "flag", "keep_ms", "most").acked(0, "")

var triggerOps = [...]string{backend.TriggerRead: "read", backend.TriggerNote: "note", backend.TriggerDone: "done", backend.TriggerDrop: "drop"}

// Trigger orders the triggers of a key.
func (*Sender) Trigger(r *backend.TriggerRequest) Command {
	return Trigger.command(r.Key, triggerOps[r.Op], r.Entry, r.Number, *flag(r.Fresh || r.Ends), millis(r.Keep), r.Most)
}

// AcquireShare requests a share of a key.
var AcquireShare = script("acquire_share", []KeyName{Hash, Queue, Shares, Flow},
	"text", "locker", "lease", "enqueue", "holder", "queue_ms", "reservation", "channels", "counts_all", "waits").acked(0, "lease")

// AcquireShare requests a share of a key.
func (s *Sender) AcquireShare(r *backend.AcquireRequest) Command {
	return AcquireShare.command(r.Key, r.Share.Text(r.ID), s.Locker, micros(r.Lease), *flag(r.Queue), r.Holder, queueKeep, reservation,
		s.Channels, *flag(s.Single)).withWaits(r)
}

// Throttle admits calls by the rate of a key.
var Throttle = script("throttle", []KeyName{Hash, Queue, Shares, Flow},
	"text", "locker", "calls", "enqueue", "queue_ms", "reservation", "channels", "counts_all", "waits")

// Throttle requests that calls of a Throttled share may begin.
func (s *Sender) Throttle(r *backend.AcquireRequest) Command {
	return Throttle.command(r.Key, r.Share.Text(r.ID), s.Locker, max(r.Calls, 1), *flag(r.Queue), queueKeep, reservation, s.Channels, *flag(s.Single)).withWaits(r)
}

// Spend takes the cost of a rate.
func (s *Sender) Spend(k *backend.Key, rate backend.Rate) Command {
	return Throttle.command(k, backend.Share{Rate: rate}.Text(""), s.Locker, 0, no, queueKeep, reservation, s.Channels, *flag(s.Single))
}

// RenewShare extends a share.
var RenewShare = script("renew_share", []KeyName{Hash, Shares}, "text", "lease", "holder").acked(0, "")

func renewShare(r *backend.RenewRequest) Command {
	return RenewShare.command(r.Key, r.Share.Text(r.ID), micros(r.Lease), r.Holder)
}

// ReleaseShare ends a share, or withdraws a request for one: then it has a locker, and a notification
// for parked entries.
var ReleaseShare = script("release_share", []KeyName{Hash, Queue, Shares},
	"text", "locker", "keep_ms", "repeated", "reservation", "channels", "counts_all", "cooldown", "wake")

// ReleaseShare ends a share. cooldown is the rest of MinHold.
func (s *Sender) ReleaseShare(r *backend.ReleaseRequest, cooldown time.Duration) Command {
	return ReleaseShare.command(r.Key, r.Share.Text(r.ID), "", millis(r.Retention), *flag(r.Repeated), reservation, s.Channels, *flag(s.Single),
		micros(cooldown), "")
}

// Cooldown returns the rest of MinHold at the time now.
func Cooldown(r *backend.ReleaseRequest, now time.Time) time.Duration {
	if r.CoolUntil.IsZero() {
		return 0
	}
	return max(r.CoolUntil.Sub(now), 0)
}

func micros(d time.Duration) int64 { return d.Microseconds() }
func millis(d time.Duration) int64 { return d.Milliseconds() }

func flag(b bool) *string {
	if b {
		return &yes
	}
	return &no
}
