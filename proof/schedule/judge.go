package schedule

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// violation is a failed check. It is a panic value inside this package.
type violation struct{ check, text string }

func fail(check, format string, args ...any) {
	panic(violation{check, fmt.Sprintf(format, args...)})
}

// judge compares the server with package rules: it applies each command that the server runs to a
// key of its own, in the same order.
type judge struct {
	off       bool // the invariants judge alone
	key       rules.Key
	receivers func(locker string) int
}

// compare judges the reply and the notifications of a command whose request is r.
func (j *judge) compare(now int64, c *command, r, reply any, heard []rules.Notice) {
	e := rules.Env{Now: now, Locker: c.locker, Listeners: j.receivers}
	var want any
	var notices []rules.Notice
	switch r := r.(type) {
	case *backend.AcquireRequest:
		j.key, want, notices = rules.Acquire(j.key, r, e)
	case *backend.RenewRequest:
		j.key, want = rules.Renew(j.key, r, e)
	case *backend.ReleaseRequest:
		j.key, want, notices = rules.Release(j.key, r, c.cooldown, e)
	case *backend.WithdrawRequest:
		j.key, notices = rules.Withdraw(j.key, r, e)
	case *backend.CompleteRequest:
		j.key, want, notices = rules.Complete(j.key, r, e)
	case *backend.Key:
		j.key, _, notices = rules.Revoke(j.key, &backend.RevokeRequest{Key: r}, c.id, e)
	case *backend.ClearRequest:
		j.key, want, notices = rules.Clear(j.key, r, c.id, e)
	case *backend.ParkRequest:
		j.key, want = rules.Park(j.key, r, e)
	case *backend.UnparkRequest:
		j.key, want = rules.Unpark(j.key, r, e)
	case *backend.AdoptRequest:
		j.key, want = rules.Adopt(j.key, r, e)
	case *backend.InterimRequest:
		j.key, want, notices = rules.Interim(j.key, r, e)
	case backend.Rate:
		j.key = rules.Spend(j.key, r, e)
	}
	if j.off {
		return
	}
	if !reflect.DeepEqual(reply, want) {
		fail("reply", "%v of %s returns another reply: %s", c.op, c.id, differences(reply, want))
	}
	n := 0
	for _, notice := range notices {
		if j.receivers(notice.Locker) == 0 {
			continue
		}
		if n++; n > len(heard) || heard[n-1] != notice {
			fail("notifications", "%v of %s sends %+v, want %+v", c.op, c.id, heard, notices)
		}
	}
	if n != len(heard) {
		fail("notifications", "%v of %s sends %+v, want %+v", c.op, c.id, heard, notices)
	}
}

// grantedMany judges whether grant_many.lua runs a command: an acquire of a key without data, or a
// release of a plain hold of an exclusive key.
func (j *judge) grantedMany(now int64, kind backend.Kind, c *command, done bool) {
	j.key.Expire(now)
	want := j.key.Plain && j.key.Owner == c.id && kind == backend.KindExclusive
	if c.op == acquire {
		want = j.key.Empty()
	}
	if done != want && !j.off {
		fail("reply", "grant_many.lua runs the %v of %s: %v, want %v", c.op, c.id, done, want)
	}
}

// inspected judges the state of the key.
func (j *judge) inspected(now int64, kind backend.Kind, s backend.Status) {
	var want backend.Status
	j.key, want = rules.Inspect(j.key, kind, backend.NoRecord, rules.Env{Now: now}) // it corrects an end after the clock was set back
	if !j.off && !reflect.DeepEqual(s, want) {
		fail("state", "the key has another state: %s", differences(s, want))
	}
}

// kept judges how long the server keeps the data of the key. Marks of woken entries may end before
// the entries.
func (j *judge) kept(now int64, hash string, ttls map[string]int64) {
	if j.off {
		return
	}
	k := j.key
	k.Expire(now)
	n := 0
	for _, part := range [...]struct {
		name wire.KeyName
		ends int64
	}{{wire.Hash, k.Expires}, {wire.Queue, k.QueueExpires}, {wire.Shares, k.SharesExpires}, {wire.Parked, k.ParkedExpires}, {wire.Triggers, k.TriggersExpires}, {wire.Flow, k.Flow.Expires}} {
		ttl, stored := ttls[wire.Stored(hash, part.name)]
		if stored {
			n++
		}
		if want := max(part.ends-now, 0); ttl != want || stored != (want > 0) {
			fail("TTL", "%s is stored: %v, for %d µs, want %d", wire.Stored(hash, part.name), stored, ttl, want)
		}
	}
	if ttl, stored := ttls[wire.Stored(hash, wire.Woken)]; stored {
		if n++; ttl <= 0 {
			fail("TTL", "the marks of woken entries have no TTL")
		}
	}
	if n != len(ttls) {
		fail("TTL", "the server keeps %v", ttls)
	}
}

// differences describes how a value differs from the wanted one, which has the same type.
func differences(got, want any) string {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if _, isTime := got.(time.Time); isTime || g.Kind() != reflect.Struct {
		return fmt.Sprintf("%+v, want %+v", got, want)
	}
	var all []string
	for f, v := range g.Fields() {
		if a, b := v.Interface(), w.FieldByIndex(f.Index).Interface(); !reflect.DeepEqual(a, b) {
			all = append(all, f.Name+" "+differences(a, b))
		}
	}
	return strings.Join(all, ", ")
}

// has reports whether a request has the key or a share of it.
func (j *judge) has(now int64, id string) bool {
	k := &j.key
	for i := range k.Shares {
		if s := &k.Shares[i]; s.ID == id && !s.Cooling && s.End > now {
			return true
		}
	}
	return k.State == rules.Held && k.Owner == id && k.End > now
}

// ends returns the times at which something ends on the server.
func (j *judge) ends() []int64 {
	k := &j.key
	all := []int64{k.End, k.Expires, k.QueueExpires, k.ParkedExpires, k.Flow.Buckets[0].Full, k.Flow.Expires}
	for i := range k.Shares {
		all = append(all, k.Shares[i].End)
	}
	return all
}
