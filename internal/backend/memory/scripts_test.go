package memory_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
)

// channels is the prefix of the names of channels in backend/redis.
const channels = "holdfast:2:wake:"

// scriptTexts returns the scripts by name. edits replace text. Each text must occur.
func scriptTexts(t *testing.T, edits ...[2]string) map[string]string {
	t.Helper()
	all := redis.Texts()
	for _, e := range edits {
		used := false
		for name, text := range all {
			used = used || strings.Contains(text, e[0])
			all[name] = strings.ReplaceAll(text, e[0], e[1])
		}
		if !used {
			t.Fatalf("no script contains %q", e[0])
		}
	}
	return all
}

// scripted is a server that runs the scripts.
type scripted interface {
	// run runs a script at the time now. It returns the reply, and the data of the key after it.
	run(now int64, script string, key backend.Key, args ...any) (any, memory.Stored, error)
	look(key backend.Key) memory.Stored
	remove(key backend.Key)
	unmark(key backend.Key) // removes the marks of woken entries
	enqueue(now int64, key backend.Key, locker string, since int64, ids ...string)
	listen(locker string, on bool)
	heard() []string // the notifications since the last call
}

// keysOf returns the KEYS of a script.
func keysOf(script string, k backend.Key) []string {
	hash, queue := k.Stored[0], k.Stored[1]
	switch script {
	case "renew", "call_waker", "adopt":
		return []string{hash}
	case "inspect":
		return []string{hash, queue, hash + ":p", hash + ":s"}
	case "acquire_share", "release_share", "renew_share", "leave", "revoke", "clear":
		return []string{hash, queue, hash + ":s"}
	case "park", "unpark":
		return []string{hash, hash + ":p", hash + ":w"}
	}
	return []string{hash, queue}
}

// namesOf returns the names of all data of a key.
func namesOf(k backend.Key) []string {
	hash := k.Stored[0]
	return []string{hash, k.Stored[1], hash + ":p", hash + ":w", hash + ":s"}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func acquireArgs(r *backend.AcquireRequest, locker string) []any {
	mode := "exclusive"
	if r.Key.Kind == backend.KindOnce {
		if mode = "least"; r.AtMostOnce {
			mode = "most"
		}
	}
	return []any{
		r.ID, locker, r.Lease.Microseconds(), bit(r.Queue), r.Holder, r.Retention.Milliseconds(), r.Fingerprint, mode, backend.QueueTTL.Milliseconds(), bit(r.First),
	}
}

func acquireShareArgs(r *backend.AcquireRequest, locker string) []any {
	return []any{
		memory.ShareText(r.ID, r.Share), locker, r.Lease.Microseconds(), bit(r.Queue), r.Holder, backend.QueueTTL.Milliseconds(),
		backend.ReserveTime.Microseconds(), channels, 1,
	}
}

func renewShareArgs(r *backend.RenewRequest) []any {
	return []any{memory.ShareText(r.ID, r.Share), r.Lease.Microseconds(), r.Holder}
}

func releaseShareArgs(r *backend.ReleaseRequest, cooldown time.Duration) []any {
	return []any{
		memory.ShareText(r.ID, r.Share), "", r.Retention.Milliseconds(), bit(r.Repeated), backend.ReserveTime.Microseconds(), channels, 1,
		cooldown.Microseconds(), "",
	}
}

func leaveShareArgs(r *backend.WithdrawRequest, locker string) []any {
	return []any{
		memory.ShareText(r.ID, r.Share), locker, r.Retention.Milliseconds(), bit(r.Repeated), backend.ReserveTime.Microseconds(), channels, 1, 0, wakeArgs(r.Key)[1],
	}
}

func renewArgs(r *backend.RenewRequest) []any {
	news := ""
	if r.Token != 0 {
		news = fmt.Sprint(r.Token, " ", r.Holder)
	}
	return []any{r.ID, r.Lease.Microseconds(), r.Retention.Milliseconds(), news}
}

func releaseArgs(r *backend.ReleaseRequest, cooldown time.Duration) []any {
	return []any{
		r.ID, r.Token, bit(r.Abandon), (r.Retention + cooldown).Milliseconds(), bit(r.Repeated), backend.ReserveTime.Microseconds(), channels, 1, cooldown.Microseconds(),
		bit(r.Plain && !r.Repeated && !r.Abandon && cooldown == 0),
	}
}

func rotateArgs(r *backend.ReleaseRequest, locker string) []any {
	n := r.Next
	return []any{
		r.ID, r.Token, r.Retention.Milliseconds(), bit(r.Repeated), backend.ReserveTime.Microseconds(), channels, 1,
		n.ID, locker, n.Lease.Microseconds(), bit(n.Queue), n.Holder, n.Retention.Milliseconds(), backend.QueueTTL.Milliseconds(),
	}
}

func leaveArgs(r *backend.WithdrawRequest, locker string) []any {
	return []any{r.ID, locker, r.Retention.Milliseconds(), bit(r.Repeated), backend.ReserveTime.Microseconds(), channels, 1, wakeArgs(r.Key)[1]}
}

func completeArgs(r *backend.CompleteRequest) []any {
	return []any{r.ID, string(r.Record), r.Keep.Milliseconds(), r.Token, channels, bit(r.Repeated), bit(r.Plain && !r.Repeated)}
}

func clearArgs(r *backend.ClearRequest, id string) []any {
	token, isDone := "", ""
	switch r.Condition {
	case backend.ClearIfSame:
		token, isDone = fmt.Sprint(r.Token), fmt.Sprint(bit(r.Done))
	case backend.ClearIfUnreadable:
		token = "bad"
	default:
	}
	return []any{backend.FreeTTL.Milliseconds(), backend.ReserveTime.Microseconds(), channels, 1, token, isDone, id}
}

func forceClearArgs(r *backend.ForceClearRequest, id string) []any {
	return []any{r.Token, r.Locker, r.Silent.Microseconds(), channels, 1, id, wakeArgs(r.Key)[1]}
}

func adoptArgs(r *backend.AdoptRequest, locker string) []any {
	return []any{r.From, r.ID, locker, r.Lease.Microseconds(), r.Holder, r.Retention.Milliseconds()}
}

func parkArgs(r *backend.ParkRequest, locker string) []any {
	return []any{r.Entry, r.Most, r.Keep.Milliseconds(), locker}
}

func unparkArgs(r *backend.UnparkRequest) []any {
	args := []any{r.Woken, r.Prefix, r.FreshTime().Microseconds(), r.Marked}
	for _, entry := range r.Remove {
		args = append(args, entry)
	}
	return args
}

func wakeArgs(k *backend.Key) []any {
	return []any{channels, map[backend.Kind]string{backend.KindExclusive: "px", backend.KindOnce: "po"}[k.Kind] + k.Name}
}

// reply is a decoded reply.
type reply []any

func (r reply) num(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

// flag returns an element that may be missing.
func (r reply) flag(i int) bool { return len(r) > i && r.num(i) == 1 }

func (r reply) text(i int) string {
	s, _ := r[i].(string)
	return s
}

func (r reply) span(i int) time.Duration { return time.Duration(r.num(i)) * time.Microsecond }

// acquired reads a reply of acquire.lua to a call with a fingerprint.
func acquired(r reply, fingerprint string) (a backend.AcquireReply) {
	if record, of, ok := redis.PlainRecord(r.text(0)); ok {
		if fingerprint != "" && of != "" && of != fingerprint {
			return backend.AcquireReply{Outcome: backend.OutcomeMismatch, IsDone: true}
		}
		return backend.AcquireReply{Outcome: backend.OutcomeDone, Record: []byte(record), Attempt: 1, Fingerprint: of}
	}
	if token, err := strconv.ParseInt(r.text(0), 10, 64); err == nil {
		return backend.AcquireReply{Outcome: backend.OutcomeGranted, Plain: true, Token: token, Attempt: 1, GrantedAt: time.UnixMicro(token)}
	}
	switch r.num(0) {
	case 0:
		a.Remaining, a.HeldFor, a.Holder, a.Queue = r.span(1), r.span(2), r.text(3), int(r.num(4))
		if len(r) > 6 {
			a.Locker = r.text(6)
		}
		if len(r) > 5 {
			a.Fingerprint = r.text(5)
		}
		if len(r) > 7 {
			a.Record = []byte(r.text(7))
		}
		if len(r) > 8 {
			a.Shares = int(r.num(8))
		}
		if len(r) > 9 {
			a.Place = int(r.num(9))
		}
	case 1:
		a.Outcome, a.Token, a.Attempt, a.Abandoned, a.Parked = backend.OutcomeGranted, r.num(1), int(r.num(2)), r.num(3) == 1, r.flag(4)
		a.GrantedAt = time.UnixMicro(a.Token)
		if len(r) > 5 {
			a.Phase, a.GrantedAt = r.text(5), time.UnixMicro(r.num(6))
		}
	case 2:
		a.Outcome, a.Record, a.Attempt, a.Fingerprint, a.Parked = backend.OutcomeDone, []byte(r.text(1)), int(r.num(2)), r.text(3), r.flag(4)
	case 3:
		a.Outcome, a.IsDone = backend.OutcomeMismatch, r.num(1) == 1
	case 4:
		a.Outcome, a.Holder, a.HeldFor, a.Attempt = backend.OutcomeAbandoned, r.text(1), r.span(2), int(r.num(3))
	case 5:
		a.Outcome = backend.OutcomeEnded
	}
	return a
}

// ended reads a reply of release.lua or complete.lua.
func ended(r reply) any { return backend.ReleaseReply{Released: r.num(0) == 1, Parked: r.flag(1)} }

// adopted reads a reply of adopt.lua.
func adopted(r reply) any {
	switch r.num(0) {
	case 1:
		return backend.AdoptReply{
			Verdict: backend.VerdictKept, Token: r.num(1), GrantedAt: time.UnixMicro(r.num(1)), Attempt: int(r.num(2)), Abandoned: r.flag(3),
			Parked: r.flag(4), Fingerprint: r.text(5),
		}
	case 2:
		return backend.AdoptReply{Verdict: backend.VerdictRevoked}
	}
	return backend.AdoptReply{}
}

// parked reads a reply of park.lua.
func parked(r reply) any {
	switch r.num(0) {
	case 1:
		return backend.ParkReply{Outcome: backend.ParkFull, Count: int(r.num(1)), Oldest: r.span(2)}
	case 2:
		return backend.ParkReply{Outcome: backend.Parked, Before: int(r.num(1)), Count: int(r.num(2)), Age: r.span(3), Oldest: r.span(4)}
	}
	return backend.ParkReply{}
}

// unparked reads a reply of unpark.lua.
func unparked(r reply) any {
	u := backend.UnparkReply{Removed: int(r.num(0)), Age: r.span(1), Count: int(r.num(2)), Oldest: r.span(3), Marked: r.num(4)}
	for i := range r[5:] {
		u.Wake = append(u.Wake, r.text(5+i))
	}
	return u
}

func inspected(kind backend.Kind, r reply) backend.Status {
	live, abandoned := r.num(7) == 1, r.num(8) == 1
	s := backend.Status{
		State: backend.StateFree, Holder: r.text(1), HeldFor: r.span(2), Remaining: r.span(3),
		Token: r.num(4), Attempt: int(r.num(5)), Queue: int(r.num(6)), Revoked: r.num(9) == 1, Locker: r.text(11),
	}
	if len(r) > 13 {
		s.Parked, s.OldestParked, s.ParkedFor = int(r.num(13)), r.text(14), r.span(15)
	}
	if s.Token > 0 {
		s.GrantedAt = time.UnixMicro(s.Token)
	}
	switch state := r.text(0); {
	case state == "d":
		s.State, s.KeepLeft = backend.StateDone, r.span(10)
		if len(r) > 12 {
			s.Record = []byte(r.text(12))
		}
	case state == "h" && live:
		s.State, s.Lease = backend.StateHeld, r.span(16)
	case kind == backend.KindOnce && (state == "h" || abandoned):
		s.State, s.KeepLeft = backend.StateAbandoned, r.span(10)
	case state == "r" && live:
		s.State = backend.StateReserved
	case state == "c" && live:
		s.State = backend.StateCooling
	case state == "s" && live:
		s.State, s.Weights = backend.StateShared, int(r.num(16))
		for i := 17; i < len(r); i += 5 {
			id, text, _ := strings.Cut(r.text(i), "/")
			h := backend.ShareHeld{Remaining: r.span(i + 1), HeldFor: r.span(i + 2), Locker: r.text(i + 3), Holder: r.text(i + 4), Cooling: id[0] == 'c'}
			if _, err := fmt.Sscanf(text, "%d/%d/", &h.Limit, &h.Weight); err != nil {
				panic(err)
			}
			s.Shares = append(s.Shares, h)
		}
	case state == "h" || abandoned:
		s.Died = true
	}
	return s
}
