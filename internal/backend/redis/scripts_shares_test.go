package redis_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// epoch is the time of a server whose data a test prints.
const epoch = 1_000_000_000_000_000 // µs

const (
	permit = "/2/1/" // a request for a share of limit 2 and weight 1
	heavy  = "/9/3/"
)

func acquireShare(text, locker string, queue int) call {
	return call{Script: wire.AcquireShare, make: func(k *backend.Key) wire.Command {
		return sender(locker).AcquireShare(&backend.AcquireRequest{Key: k, Lease: lease, Queue: queue == 1, Holder: "who " + text[:1]})
	}}.with("text", text).with("reservation", window.Microseconds()).with("counts_all", 0)
}

// releaseShare returns a call that cannot count the receivers of its notification, as in a cluster.
func releaseShare(text string, remember int, cooldown time.Duration) call {
	return call{Script: wire.ReleaseShare, make: func(k *backend.Key) wire.Command {
		return sender(mine).ReleaseShare(&backend.ReleaseRequest{Key: k, Retention: keep, Repeated: remember == 1}, cooldown)
	}}.with("text", text).with("reservation", window.Microseconds()).with("counts_all", 0)
}

var (
	storedTime = regexp.MustCompile(`\b1\d{15}\b`)
	storedID   = regexp.MustCompile(`[A-Z]{26}`)
)

// stored returns all data of the server, with one line for each name, and its TTL. Times are
// relative to epoch, and ids have one letter.
func (b *oneKey) stored() (lines []string) {
	b.Helper()
	keys := b.rdb.Keys(b.Context(), "*").Val()
	slices.Sort(keys)
	for _, key := range keys {
		line := fmt.Sprintf("%s TTL %v:", "key"+strings.TrimPrefix(key, b.keys[0]), b.rdb.PTTL(b.Context(), key).Val())
		switch b.rdb.Type(b.Context(), key).Val() {
		case "string":
			line += " " + b.rdb.Get(b.Context(), key).Val()
		case "hash":
			h := b.rdb.HGetAll(b.Context(), key).Val()
			for _, field := range slices.Sorted(maps.Keys(h)) {
				line += fmt.Sprintf(" %s=%s", field, strings.ReplaceAll(h[field], "\n", "|"))
			}
		default:
			for _, z := range b.rdb.ZRangeWithScores(b.Context(), key, 0, -1).Val() {
				line += fmt.Sprintf(" %s@%.0f", z.Member, z.Score)
			}
		}
		line = storedTime.ReplaceAllStringFunc(line, func(us string) string {
			n, _ := strconv.ParseInt(us, 10, 64)
			return (time.Duration(n-epoch) * time.Microsecond).String()
		})
		lines = append(lines, storedID.ReplaceAllStringFunc(line, func(id string) string { return id[:1] }))
	}
	return lines
}

// TestScriptStored lists the form of all stored data of a key, in each state. A change of a form
// needs a new layout version.
func TestScriptStored(t *testing.T) {
	plain := func(mode string) call { return acquire(me, mine, mode, "tag", 0).with("plain", 1) }
	exclusive, waiter := acquire(me, mine, "exclusive", "", 0), acquire(mismatch, listener, "exclusive", "", 1)
	first, second := acquireShare(me+permit, mine, 0), acquireShare(id("S")+heavy, listener, 0)
	for name, c := range map[string]struct {
		calls []call
		want  []string
	}{
		"plain hold": {[]call{plain("exclusive")}, []string{
			`key TTL 2h0m0s: hM 0s 30000000 0 A who M`,
		}},
		"plain hold of a once key": {[]call{plain("least")}, []string{
			`key TTL 2h0m0s: oM 0s 30000000 0 A 3 tagwho M`,
		}},
		"plain record": {[]call{plain("least"), complete(me, "r", epoch+7, 0).with("plain", 1)}, []string{
			`key TTL 10m0s: dM 0s 7µs 3 30 tagwho Mr`,
		}},
		"held": {[]call{exclusive, waiter}, []string{
			`key TTL 2h0m0s: d=30000000 h=M m=who M o=A s=h t=0s x=30s`,
			`key:q TTL 1m0s: BO@0s`,
		}},
		"revoked": {[]call{exclusive, revoke.with("id", id("V"))}, []string{
			`key TTL 2h0m0s: d=30000000 h=M l=V m=who M o=A s=h t=0s v=1 x=30s`,
		}},
		"reserved": {[]call{exclusive, waiter, release(me, epoch, 0, 0).with("counts_all", 0)}, []string{
			`key TTL 10m0s: d=60000000 h=O o=B s=r t=0s x=1m0s`,
		}},
		"cooling": {[]call{exclusive, release(me, epoch+7, 0, 1).with("cooldown", time.Hour.Microseconds())}, []string{
			`key TTL 1h1m0s: d=3600000000 f=7µs l=M s=c t=0s x=1h0m0s`,
		}},
		"abandoned": {[]call{acquire(me, mine, "least", "tag", 0), release(me, epoch, 1, 0)}, []string{
			`key TTL 10m0s: a=1 g=tag m=who M n=1 t=0s`,
		}},
		"done": {[]call{acquire(me, mine, "least", "tag", 0), complete(me, "r", epoch+7, 0)}, []string{
			`key TTL 10m0s: e=M f=7µs g=tag m=who M n=1 r=r s=d t=0s`,
		}},
		"parked": {[]call{exclusive, park("entry").with("keep_ms", keep.Milliseconds()).with("locker", listener)}, []string{
			`key TTL 2h0m0s: d=30000000 h=M m=who M o=A p=B s=h t=0s x=30s`,
			`key:p TTL 10m0s: entry@0s`,
		}},
		"shared": {[]call{first, second}, []string{
			`key TTL 24h0m30s: M=A|0s|who M S=B|0s|who S c=4 d=30000000 h=M m=who S o=B s=s t=0s u=4 x=30s`,
			`key:s TTL 24h0m30s: M/2/1/@30s S/9/3/@30s`,
		}},
		"shared, with a queue": {
			[]call{first, acquireShare(mismatch+"/1/1/", listener, 1), waiter.with("request", next), acquireShare(id("S")+permit, listener, 0)}, []string{
				`key TTL 24h0m30s: M=A|0s|who M c=1 d=30000000 h=M m=who M o=A s=s t=0s u=1 w=N 0s x=30s`,
				`key:q TTL 1m0s: BN@0s BO/1/1/@0s`,
				`key:s TTL 24h0m30s: M/2/1/@30s`,
			},
		},
		"shared, one kept for a waiter": {[]call{first, second, acquireShare(mismatch+"/4/1/", listener, 1), releaseShare(me+permit, 1, 0)}, []string{
			`key TTL 24h1m0s: O=B|0s| S=B|0s|who S c=4 d=60000000 h=M l=M m=who S o=B s=s t=0s u=4 x=1m0s`,
			`key:s TTL 24h1m0s: S/9/3/@30s O/4/1/@1m0s`,
		}},
		"shared, one cools": {[]call{first, second, releaseShare(me+permit, 0, time.Hour)}, []string{
			`key TTL 25h0m0s: S=B|0s|who S c=4 cM=A|0s|who M d=3600000000 h=M m=who S o=B s=s t=0s u=3 x=1h0m0s`,
			`key:s TTL 25h0m0s: S/9/3/@30s cM/2/1/@1h0m0s`,
		}},
		"shared, all cool": {[]call{first, second, releaseShare(me+permit, 0, time.Hour), releaseShare(id("S")+heavy, 0, time.Second)}, []string{
			`key TTL 1h1m0s: c=4 cM=A|0s|who M cS=B|0s|who S d=3600000000 h=M m=who S o=B s=s t=0s u=0 x=1h0m0s`,
			`key:s TTL 1h1m0s: cS/9/3/@1s cM/2/1/@1h0m0s`,
		}},
		"shared, revoked": {[]call{first, revoke.with("id", id("V"))}, []string{
			`key TTL 24h0m30s: M=A|0s|who M c=1 d=30000000 h=M l=V m=who M o=A s=s t=0s u=1 v=1 x=30s`,
			`key:s TTL 24h0m30s: M/2/1/@30s`,
		}},
		"shared before": {[]call{first, releaseShare(me+permit, 1, 0)}, []string{
			`key TTL 10m0s: l=M t=0s`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := redistest.Bubble(t)
			m.Redis.SetTime(time.UnixMicro(epoch))
			b := &oneKey{T: t, rdb: m.Client(t)}
			b.use("k")
			for _, c := range c.calls {
				b.run(c)
			}
			if got := b.stored(); !slices.Equal(got, c.want) {
				t.Errorf("%s: the data is\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// The clock of the server was set back. A share ends no later than its phase, which ends no later
// than the longest share can.
// Shows: S5
func TestScriptSharesClock(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.run(acquireShare(me+permit, mine, 0))
		b.run(acquireShare(mismatch+permit, listener, 0))
		far := b.now() + time.Hour.Microseconds()
		b.must(b.rdb.HSet(b.Context(), b.keys[0], "x", far).Err())
		b.must(b.rdb.ZAdd(b.Context(), b.keys[0]+":s", redis.Z{Score: float64(far), Member: me + permit}).Err())
		b.wantReply(acquireShare(next+permit, listener, 0), 0, span(lease), span(0), "who "+mismatch[:1], 0, "", listener, "", 2)
		b.wantReply(releaseShare(mismatch+permit, 0, 0), 1)
		if end := b.rdb.ZScore(b.Context(), b.keys[0]+":s", me+permit).Val(); !match(int64(end), rel(lease), b.now()) {
			b.Errorf("the share ends at %.0f, want %v from %d on", end, lease, b.now())
		}
	})
}

// The clock of the server was set back. A restriction ends no later than it would have if it began now,
// and its bucket is full no later.
// Shows: V7
func TestScriptRestrictionClock(t *testing.T) {
	onEach(t, func(b *oneKey) {
		text := " 60000000 1 0 0 0 night" // for a minute
		late := fmt.Sprint(b.now() + time.Hour.Microseconds())
		b.must(b.rdb.HSet(b.Context(), b.keys[0]+":f", "z", late+text, "y", late+" 60000000").Err())
		b.run(acquireShare(me+permit, mine, 0))
		for field, want := range map[string]string{"z": text, "y": " 60000000"} {
			end, rest, _ := strings.Cut(b.rdb.HGet(b.Context(), b.keys[0]+":f", field).Val(), " ")
			if !match(end, rel(time.Minute), b.now()) || " "+rest != want {
				b.Errorf("the field %s is %q %q, want a time in a minute, and %q", field, end, rest, want)
			}
		}
	})
}
