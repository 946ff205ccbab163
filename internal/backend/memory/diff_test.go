package memory_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

var (
	seed       = flag.Uint64("seed", 1, "seed of the operations")
	operations = flag.Int("operations", 0, "number of operations to compare; 0: the test level decides")
)

const tolerance = 50_000 // µs, by which TTLs on a real server may differ

// compared runs the same operations on memory and on the scripts. It ends at the first difference.
type compared struct {
	t      *testing.T
	rnd    *rand.Rand
	timing timing
	server scripted
	spread func() time.Duration // the time by which TTLs may differ; nil: TTLs are exact
	peers  []backend.Backend    // the backends of the lockers on the server; nil: only scripts are sent

	space   *memory.Space
	lockers []*locker
	keys    []backend.Key
	now     int64
	lastID  string
	marked  int64           // when parked entries were marked
	numbers []int64         // of triggers, the latest last
	made    int             // number of ids
	done    int             // number of steps of the clock
	past    [][]sentRequest // recent requests, by key
	counts  map[string]int
	heard   []string // notifications of memory that are not compared yet
	unheard int      // number of operations since the last comparison of notifications
	last    []string // the last operations, for the report
	diff    string
}

// timing has the durations that operations use.
type timing struct {
	leases, retentions, keeps, cooldowns, parkings []time.Duration
	step                                           func(c *compared) // moves the clock
	often                                          int               // Inspect is compared after one of this many operations
}

type locker struct {
	*memory.Backend
	id   string
	take func() []backend.Notification
	end  func()
}

// sentRequest is a request that was sent.
type sentRequest struct {
	backend.AcquireRequest
	by    int // index of its locker
	token int64
}

func compare(t *testing.T, seed uint64, s scripted, tm timing) *compared {
	t.Helper()
	space, err := memory.NewSpace(1 << 40)
	if err != nil {
		t.Fatal(err)
	}
	c := &compared{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), timing: tm, server: s, space: space, now: 1_700_000_000_000_000, counts: map[string]int{},
	}
	c.lastID = c.id()
	space.Control(func() int64 { return c.now }, func() string { return c.lastID })
	for i := range lockers {
		l := &locker{id: lockerID(i)}
		if l.Backend, err = memory.New(memory.Options{Options: backend.Options{Locker: l.id}, Space: space}); err != nil {
			t.Fatal(err)
		}
		c.lockers = append(c.lockers, l)
	}
	for i := range 5 {
		c.keys = append(c.keys, c.lockers[0].Key(backend.KindExclusive+backend.Kind(i%2), fmt.Sprint("k", i)))
	}
	c.past = make([][]sentRequest, len(c.keys))
	return c
}

// run does n operations, or fewer if there is a difference.
func (c *compared) run(n int) {
	for i := 0; i < n && c.diff == ""; i++ {
		c.timing.step(c)
		c.operation()
		if len(c.heard) > 0 || c.unheard > 50 {
			c.compareHeard()
		}
		c.unheard++
	}
}

// kinds are the kinds of operations, with the frequency of each.
var kinds = []struct {
	weight int
	do     func(*compared, int)
}{
	{24, (*compared).acquire},
	{9, (*compared).acquireAgain},
	{9, (*compared).renew},
	{14, (*compared).release},
	{9, (*compared).rotate},
	{9, (*compared).withdraw},
	{9, (*compared).complete},
	{5, (*compared).adopt},
	{2, (*compared).interim},
	{5, (*compared).inspect},
	{3, (*compared).revoke},
	{4, (*compared).clear},
	{4, (*compared).forceClear},
	{2, (*compared).spend},
	{2, (*compared).pause},
	{2, (*compared).restrict},
	{3, (*compared).listen},
	{1, (*compared).crowd},
	{7, (*compared).park},
	{5, (*compared).unpark},
	{2, (*compared).callParkingLocker},
	{9, (*compared).trigger},
	{4, (*compared).drop}, // makes plain holds possible again
}

func (c *compared) operation() {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	i := c.rnd.IntN(total)
	for _, k := range kinds {
		if i -= k.weight; i < 0 {
			k.do(c, c.rnd.IntN(len(c.keys)))
			return
		}
	}
}

func (c *compared) chance(percent int) bool { return c.rnd.IntN(100) < percent }

func pick[T any](c *compared, from []T) T { return from[c.rnd.IntN(len(from))] }

func (c *compared) id() string {
	c.made++
	return fmt.Sprintf("R%025d", c.made) // no id is part of two concatenated ids
}

// known returns a recent request for a key, mostly one that holds it.
func (c *compared) known(key int) (sentRequest, bool) {
	past := c.past[key]
	if len(past) == 0 {
		return sentRequest{}, false
	}
	st := c.space.Look(c.keys[key].Stored[0])
	for _, a := range past {
		_, shares := st.Shares[a.Share.Text(a.ID)]
		if (shares || a.ID == st.Fields["h"]) && c.chance(75) {
			return a, true
		}
	}
	return pick(c, past), true
}

func (c *compared) newRequest(key, by int) sentRequest {
	a := sentRequest{by: by, AcquireRequest: backend.AcquireRequest{
		Key: &c.keys[key], ID: c.id(), Holder: "who " + fmt.Sprint(c.made), Lease: pick(c, c.timing.leases), Retention: pick(c, c.timing.retentions),
		Queue: c.chance(60), Timeout: backend.CallTimeout, First: c.chance(70),
	}}
	if c.keys[key].Kind == backend.KindExclusive && key > 0 && c.chance(50) {
		a.Share = backend.Share{Limit: 1 + c.rnd.IntN(5), Weight: 1}
		if a.Share.Weight += c.rnd.IntN(a.Share.Limit); c.chance(40) {
			a.Share = backend.Share{Limit: backend.Unlimited, Weight: 1}
		}
	}
	if c.keys[key].Kind == backend.KindExclusive && key > 0 && c.chance(40) {
		a.Share.Rate = pick(c, rates)
		if a.Share.Limit == backend.Unlimited || c.chance(50) {
			a.Share.Limit, a.Share.Weight, a.Calls = 0, 0, 1+c.rnd.IntN(4)
		}
	}
	if a.Share.Alone() && c.made%8 == 0 {
		a.Floor = c.now + int64(c.made%3000)
	}
	if c.made%3 == 0 {
		a.Waits = backend.Waits{Calls: 1 + c.made%7, Oldest: time.Duration(c.made%5000) * time.Millisecond}
	}
	if c.keys[key].Kind == backend.KindOnce {
		a.AtMostOnce = c.chance(25)
		a.Fingerprint = pick(c, []string{"", "f1", "f1", "2 f\n\x00"})
	}
	return a
}

func (c *compared) note(key int, a sentRequest) {
	if c.past[key] = append(c.past[key], a); len(c.past[key]) > 12 {
		c.past[key] = slices.Delete(c.past[key], 0, 1)
	}
}

func (c *compared) acquire(key int) {
	c.sendAcquire(key, c.newRequest(key, c.rnd.IntN(len(c.lockers))))
}

// acquireAgain sends a repeat or a late duplicate.
func (c *compared) acquireAgain(key int) {
	if a, ok := c.known(key); ok {
		a.First = a.First && c.chance(30) // else a late duplicate of the first send
		c.sendAcquire(key, a)
	}
}

func (c *compared) sendAcquire(key int, a sentRequest) {
	s := sender(c.lockers[a.by].id)
	cmd := s.Acquire(&a.AcquireRequest, a.First, new(wire.Room))
	switch {
	case a.Share.Throttled():
		cmd = s.Throttle(&a.AcquireRequest)
	case a.Share.Limit > 0:
		cmd = s.AcquireShare(&a.AcquireRequest)
	}
	got := c.send(key, a.by, func(b backend.Backend) (any, error) {
		reply, err := b.Acquire(c.t.Context(), a.AcquireRequest)
		reply.Sent = time.Time{}
		return reply, err
	}, func(r []any) (any, error) { return wire.DecodeAcquire(&a.AcquireRequest, r) }, cmd)
	if reply, ok := got.(backend.AcquireReply); ok && reply.Outcome == backend.OutcomeGranted {
		a.token = reply.Token
	}
	c.note(key, a)
}

// rates are the rates of requests. The time until a bucket is full is from 2 ms to two days.
var rates = []backend.Rate{
	{N: 1, Per: time.Millisecond, Burst: 1, Cost: 1},
	{N: 3, Per: 100 * time.Millisecond, Burst: 2, Cost: 1},
	{N: 3, Per: 100 * time.Millisecond, Burst: 2, Cost: 1},
	{N: 7, Per: time.Second, Burst: 5, Cost: 8},
	{N: 2, Per: 24 * time.Hour, Burst: 2, Cost: 1},
}

func (c *compared) spend(key int) {
	if c.keys[key].Kind != backend.KindExclusive {
		return
	}
	rate := pick(c, rates)
	c.send(key, 0, func(b backend.Backend) (any, error) { return nil, b.Spend(c.t.Context(), &c.keys[key], rate) }, ignored, sender("").Spend(&c.keys[key], rate))
}

func (c *compared) renew(key int) {
	a, ok := c.known(key)
	if !ok || a.Share.Throttled() {
		return
	}
	r := backend.RenewRequest{Key: a.Key, ID: a.ID, Lease: pick(c, c.timing.leases), Retention: pick(c, c.timing.retentions), Share: a.Share}
	switch {
	case c.chance(20):
		r.Lease = 0
	case c.chance(20) && a.token > 0:
		r.Token, r.Holder = a.token+int64(c.rnd.IntN(512)), "handed off"
	}
	cmds, _ := wire.Renewals([]backend.RenewRequest{r}, 1)
	c.send(key, a.by, func(b backend.Backend) (any, error) {
		reply := b.Renew(c.t.Context(), []backend.RenewRequest{r})[0]
		return reply.Verdict, reply.Err
	}, func(list []any) (any, error) { return wire.DecodeRenew(r.Key, list, 0) }, cmds[0])
}

func (c *compared) release(key int) {
	a, ok := c.known(key)
	if !ok || a.Share.Throttled() {
		return
	}
	r := backend.ReleaseRequest{
		Key: a.Key, ID: a.ID, Token: a.token, Retention: pick(c, c.timing.retentions), Abandon: c.chance(20), Repeated: c.chance(30),
		Plain: c.chance(60), Share: a.Share,
	}
	if a.Share.Limit > 0 {
		r.Abandon = false
	}
	if a.token > 0 && c.chance(50) {
		r.Token += int64(c.rnd.IntN(512))
	}
	cooldown := time.Duration(0)
	if !r.Abandon && c.chance(30) {
		cooldown = pick(c, c.timing.cooldowns)
		r.CoolUntil = time.UnixMicro(c.now).Add(cooldown)
	}
	s := sender(c.lockers[a.by].id)
	cmd := s.Release(&r, cooldown, new(wire.Room))
	if a.Share.Limit > 0 {
		cmd = s.ReleaseShare(&r, cooldown)
	}
	c.send(key, a.by, c.releasing(&r), ended, cmd)
}

func ended(r []any) (any, error) { return wire.DecodeEnd(r) }

func (c *compared) releasing(r *backend.ReleaseRequest) func(backend.Backend) (any, error) {
	return func(b backend.Backend) (any, error) {
		reply, err := b.Release(c.t.Context(), *r)
		reply.Next.Sent = time.Time{}
		return reply, err
	}
}

func (c *compared) rotate(key int) {
	a, ok := c.known(key)
	if !ok || a.Key.Kind != backend.KindExclusive || !a.Share.Alone() {
		return
	}
	next := c.newRequest(key, a.by)
	next.Share = backend.Share{}
	if c.chance(30) {
		if next, _ = c.known(key); next.by != a.by || next.ID == a.ID || !next.Share.Alone() {
			return
		}
	}
	r := backend.ReleaseRequest{
		Key: a.Key, ID: a.ID, Token: a.token + int64(c.rnd.IntN(512)), Retention: pick(c, c.timing.retentions), Repeated: c.chance(30), Next: &next.AcquireRequest,
	}
	got := c.send(key, a.by, c.releasing(&r), func(list []any) (any, error) {
		reply, err, nextErr := wire.DecodeRotate(&r, list)
		return reply, errors.Join(err, nextErr)
	}, sender(c.lockers[a.by].id).Rotate(&r))
	if reply, ok := got.(backend.ReleaseReply); ok && reply.Next.Outcome == backend.OutcomeGranted {
		next.token = reply.Next.Token
	}
	c.note(key, next)
}

func (c *compared) withdraw(key int) {
	a, ok := c.known(key)
	if !ok {
		return
	}
	r := backend.WithdrawRequest{Key: a.Key, ID: a.ID, Retention: pick(c, c.timing.retentions), Repeated: c.chance(40), Share: a.Share}
	c.send(key, a.by, func(b backend.Backend) (any, error) {
		b.Withdraw(r)
		return nil, nil
	}, ignored, sender(c.lockers[a.by].id).Withdraw(&r))
}

// adopt sends an adoption, a repeat, or a late duplicate.
func (c *compared) adopt(key int) {
	from, ok := c.known(key)
	if !ok {
		return
	}
	to, _ := c.known(key)
	if c.chance(70) {
		to = c.newRequest(key, c.rnd.IntN(len(c.lockers)))
	}
	r := backend.AdoptRequest{
		Key: from.Key, From: from.ID, ID: to.ID, Holder: "adopter", Lease: pick(c, c.timing.leases), Retention: pick(c, c.timing.retentions),
	}
	got := c.send(key, to.by, func(b backend.Backend) (any, error) {
		reply, err := b.Adopt(c.t.Context(), r)
		reply.Sent = time.Time{}
		return reply, err
	}, func(r []any) (any, error) { return wire.DecodeAdopt(r) }, sender(c.lockers[to.by].id).Adopt(&r))
	if reply, ok := got.(backend.AdoptReply); ok && reply.Verdict == backend.VerdictKept {
		to.token = reply.Token
		c.note(key, to)
	}
}

func (c *compared) interim(key int) {
	a, ok := c.known(key)
	if !ok {
		return
	}
	r := backend.InterimRequest{Key: a.Key, ID: a.ID, Attempt: 1 + c.rnd.IntN(3), Answer: []byte(pick(c, []string{"a", " \x00\n"}))}
	if n, err := strconv.Atoi(c.space.Look(a.Key.Stored[0]).Fields["n"]); err == nil && c.chance(80) {
		r.Attempt = n
	}
	c.send(key, a.by, func(b backend.Backend) (any, error) { return b.Interim(c.t.Context(), r) }, func(r []any) (any, error) {
		return wire.DecodeInterim(r)
	}, sender("").Interim(&r))
}

// records has a record of each size that the rules distinguish.
var records = []string{"", " r\x00\n", strings.Repeat("r", 600), strings.Repeat("r", 2048), strings.Repeat("r", 2049)}

func (c *compared) complete(key int) {
	a, ok := c.known(key)
	if !ok || a.Key.Kind != backend.KindOnce {
		return
	}
	r := backend.CompleteRequest{
		Key: a.Key, ID: a.ID, Token: a.token, Record: []byte(pick(c, records)), Keep: pick(c, c.timing.keeps), Repeated: c.chance(40),
		Plain: c.chance(60),
	}
	if c.spread != nil && r.Keep < time.Second { // the TTL on a real server must not end
		r.Repeated = true
	}
	c.send(key, a.by, func(b backend.Backend) (any, error) { return b.Complete(c.t.Context(), r) }, ended, sender("").Complete(&r))
}

// entries are the parked entries. Some differ only in their ends.
var entries = []string{"a 1", "a 2", "a 3", "b 1", "b 2", "\xff\x00", "a"}

func (c *compared) park(key int) {
	by := c.rnd.IntN(len(c.lockers))
	r := backend.ParkRequest{Key: &c.keys[key], Entry: pick(c, entries), Most: 2 + c.rnd.IntN(5), Keep: pick(c, c.timing.parkings), Free: c.chance(20)}
	c.send(key, by, func(b backend.Backend) (any, error) { return b.Park(c.t.Context(), r) }, func(r []any) (any, error) {
		return wire.DecodePark(r)
	}, sender(c.lockers[by].id).Park(&r))
}

func (c *compared) unpark(key int) {
	r := backend.UnparkRequest{Key: &c.keys[key], Woken: c.rnd.IntN(4), Prefix: pick(c, []string{"", "", "a", "b", "a 1"}), Fresh: pick(c, []time.Duration{0, 0, 0, time.Second})}
	for range pick(c, []int{0, 0, 1, 2}) {
		r.Skip = append(r.Skip, pick(c, []string{"a", "b", "a 1", "\xff"}))
	}
	for range pick(c, []int{0, 0, 1, 1, 2, 5}) {
		r.Remove = append(r.Remove, pick(c, entries))
	}
	if len(r.Remove) > 0 && c.rnd.IntN(2) == 0 {
		r.Marked = c.marked
	}
	got := c.send(key, c.rnd.IntN(len(c.lockers)), func(b backend.Backend) (any, error) { return b.Unpark(c.t.Context(), r) }, func(r []any) (any, error) {
		return wire.DecodeUnpark(r)
	}, sender("").Unpark(&r))
	if reply, ok := got.(backend.UnparkReply); ok && len(reply.Wake) > 0 {
		c.marked = reply.Marked
	}
}

func (c *compared) callParkingLocker(key int) {
	k := &c.keys[key]
	c.send(key, 0, func(b backend.Backend) (any, error) { return b.CallParkingLocker(c.t.Context(), k) }, func(r []any) (any, error) {
		return wire.DecodeCallParkingLocker(r)
	}, sender("").CallParkingLocker(k))
}

// trigger notes, ends or reads triggers of a few tasks. Some requests are late, or name the number of
// another trigger.
func (c *compared) trigger(key int) {
	r := backend.TriggerRequest{
		Key: &c.keys[key], Op: backend.TriggerNote, Entry: pick(c, []string{"/q/1", "/q/2", "/q/3", "/q/4", "a/q/1", "/\xff/\x00"}), Fresh: c.chance(60),
		Keep: pick(c, c.timing.parkings), Most: 3 + c.rnd.IntN(6),
	}
	if c.chance(60) && len(c.numbers) > 0 {
		r.Op = pick(c, []backend.TriggerOp{backend.TriggerRead, backend.TriggerDone, backend.TriggerDone, backend.TriggerDone, backend.TriggerDrop, backend.TriggerDrop})
		r.Fresh, r.Ends = false, r.Op != backend.TriggerRead && c.chance(80)
		r.Number = pick(c, c.numbers)
		if st := c.space.Look(c.keys[key].Stored[0]); c.chance(60) && st.Triggers[r.Entry] > 0 {
			r.Number = st.Triggers[r.Entry]
		}
		if c.chance(10) {
			r.Entry = ""
		}
	}
	got := c.send(key, c.rnd.IntN(len(c.lockers)), func(b backend.Backend) (any, error) { return b.Order(c.t.Context(), r) }, func(list []any) (any, error) {
		return wire.DecodeTrigger(r.Op, list)
	}, sender("").Trigger(&r))
	if reply, ok := got.(backend.TriggerReply); ok && reply.Number > 0 {
		if c.numbers = append(c.numbers, reply.Number); len(c.numbers) > 6 {
			c.numbers = slices.Delete(c.numbers, 0, 1)
		}
	}
	if c.chance(20) { // at the same time
		c.trigger(key)
	}
}

func (c *compared) inspect(key int) { c.see(key) }

// see returns what an operator sees. Both sides are read: it corrects what was stored before the clock was
// set back.
func (c *compared) see(key int) backend.Status {
	part := backend.RecordPart(c.rnd.IntN(3))
	k := &c.keys[key]
	s, _ := c.send(key, 0, func(b backend.Backend) (any, error) { return b.Inspect(c.t.Context(), k, part) }, func(r []any) (any, error) {
		return wire.DecodeInspect(k.Kind, r)
	}, sender("").Inspect(k, part)).(backend.Status)
	return s
}

func (c *compared) revoke(key int) {
	if c.peers != nil || c.lastID == "" || c.chance(70) {
		c.lastID = c.id()
	}
	r := backend.RevokeRequest{Key: &c.keys[key]}
	if c.chance(60) {
		bound := c.now
		if c.chance(60) {
			bound, _ = strconv.ParseInt(c.space.Look(c.keys[key].Stored[0]).Fields["t"], 10, 64)
			bound += int64(c.rnd.IntN(3) - 1)
		}
		if bound = max(bound, 0); c.chance(50) {
			r.Before = bound
		} else {
			r.Seen = bound
		}
	}
	c.send(key, 0, func(b backend.Backend) (any, error) { return b.Revoke(c.t.Context(), r) }, func(reply []any) (any, error) {
		revoked, _, _ := wire.DecodeRevoke(reply)
		return revoked, nil
	}, sender("").Revoke(&r, c.lastID, wire.RevokeStep{}))
}

func (c *compared) pause(key int) {
	if c.keys[key].Kind != backend.KindExclusive {
		return
	}
	if c.peers != nil || c.chance(80) {
		c.lastID = c.id()
	}
	d, reason := pick(c, append(c.timing.cooldowns, 0, 0, 30*time.Millisecond)), pick(c, []string{"429", "a b\n\x00"})
	c.send(key, 0, func(b backend.Backend) (any, error) { return nil, b.Pause(c.t.Context(), &c.keys[key], d, reason) }, ignored, sender("").Pause(&c.keys[key], d, reason, c.lastID))
}

func (c *compared) restrict(key int) {
	if c.keys[key].Kind != backend.KindExclusive {
		return
	}
	if c.peers != nil || c.chance(80) {
		c.lastID = c.id()
	}
	r := backend.Restriction{For: pick(c, append(c.timing.cooldowns, 0, time.Minute)), Limit: c.rnd.IntN(4), Reason: pick(c, []string{"night", "a b\n\x00"})}
	if c.chance(60) {
		r.Rate = backend.Rate{N: 1 + c.rnd.IntN(20), Per: time.Second, Burst: 1 + c.rnd.IntN(3)}
	}
	c.sendRestrict(key, r)
}

func (c *compared) sendRestrict(key int, r backend.Restriction) {
	c.send(key, 0, func(b backend.Backend) (any, error) { return nil, b.Restrict(c.t.Context(), &c.keys[key], r) }, ignored, sender("").Restrict(&c.keys[key], r, c.lastID))
}

func (c *compared) clear(key int) {
	if c.peers != nil || c.chance(80) {
		c.lastID = c.id()
	}
	r := backend.ClearRequest{Key: &c.keys[key], Condition: pick(c, []backend.ClearCondition{0, 0, 1, 1, 2})}
	if r.Condition == backend.ClearIfSame {
		s := c.see(key)
		r.Token, r.Done = s.Token+int64(c.rnd.IntN(2)), (s.State == backend.StateDone) != c.chance(10)
	}
	c.send(key, 0, func(b backend.Backend) (any, error) { return b.Clear(c.t.Context(), r) }, func(r []any) (any, error) {
		return wire.DecodeClear(r)
	}, sender("").Clear(&r, c.lastID))
}

func (c *compared) forceClear(key int) {
	if c.peers != nil || c.chance(80) {
		c.lastID = c.id()
	}
	s := c.see(key)
	r := backend.ForceClearRequest{Key: &c.keys[key], Token: s.Token, Locker: s.Locker, Silent: pick(c, []time.Duration{0, 0, time.Millisecond, time.Second, time.Minute})}
	switch c.rnd.IntN(20) {
	case 0:
		r.Token++
	case 1:
		r.Locker = pick(c, c.lockers).id
	}
	c.send(key, 0, func(b backend.Backend) (any, error) { return b.ForceClear(c.t.Context(), r) }, func(r []any) (any, error) {
		return wire.DecodeForceClear(r)
	}, sender("").ForceClear(&r, c.lastID))
}

// listen starts or ends the subscription of a locker.
func (c *compared) listen(int) {
	c.compareHeard()
	l := pick(c, c.lockers)
	c.log("listen %s", l.id)
	if l.take != nil {
		l.end()
		l.take = nil
	} else {
		l.take, l.end = l.Subscribe()
	}
	c.server.listen(l.id, l.take != nil)
}

// crowd puts many waiters into a queue, with a chance of 3 %. No process knows them. Their locker
// may be unsubscribed.
func (c *compared) crowd(key int) {
	if !c.chance(3) {
		return
	}
	ids := make([]string, pick(c, []int{90, 110, 230, 1100}))
	var share backend.Share
	if c.keys[key].Kind == backend.KindExclusive && c.chance(60) {
		share = pick(c, []backend.Share{{Limit: 2, Weight: 1}, {Limit: backend.Unlimited, Weight: 1}, {Rate: rates[1]}, {Limit: 2, Weight: 1, Rate: rates[1]}})
	}
	texts := make([]string, len(ids))
	for i := range ids {
		ids[i] = c.id()
		texts[i] = share.Text(ids[i])
	}
	l, since := pick(c, c.lockers), c.now-int64(c.rnd.IntN(1000))
	c.log("crowd of %d on %s", len(ids), c.keys[key].Name)
	c.space.Enqueue(c.keys[key], l.id, since, share, ids...)
	c.server.enqueue(c.now, c.keys[key], l.id, since, texts...)
}

func (c *compared) log(format string, args ...any) {
	if c.last = append(c.last, fmt.Sprintf("%d "+format, append([]any{c.now}, args...)...)); len(c.last) > 30 {
		c.last = slices.Delete(c.last, 0, 1)
	}
}

func ignored([]any) (any, error) { return nil, nil }

// send does an operation on memory and on the server, by its script or by the backend of the
// locker. It compares the replies, and then the stored data of the key.
func (c *compared) send(key, by int, do func(backend.Backend) (any, error), read func([]any) (any, error), cmd wire.Command) any {
	c.t.Helper()
	k := c.keys[key]
	got, err := do(c.lockers[by])
	_, args := cmd.Texts()
	c.counts[cmd.Name+outcome(got)]++
	c.log("%s%s %s %q", cmd.Name, outcome(got), k.Name, args)
	var want any
	var stored memory.Stored
	var serverErr error
	if c.peers != nil {
		want, serverErr = do(c.peers[by])
		synctest.Wait() // until a withdrawal has been sent
		stored = c.server.look(k)
	} else {
		for more := true; more && serverErr == nil; { // while it was only a step, see share_member.lua and revoke.lua
			want, stored, serverErr = c.server.run(c.now, cmd, k)
			if more = wire.IsStep(want); cmd.Script == wire.Revoke {
				var step wire.RevokeStep
				_, step, more = wire.DecodeRevoke(wire.Elements(want))
				cmd = sender("").Revoke(&backend.RevokeRequest{Key: &k}, c.lastID, step)
			}
		}
		if serverErr == nil {
			want, serverErr = read(wire.Elements(want))
		}
	}
	switch {
	case err != nil || serverErr != nil:
		c.differ("errors: memory %v, server %v", err, serverErr)
	case !c.same(got, want):
		c.differ("replies: memory %+v, server %+v", got, want)
	}
	c.hear()
	c.compareStored(k, stored)
	if cmd.Script != wire.Inspect && c.diff == "" && c.rnd.IntN(c.timing.often) == 0 {
		c.inspect(key)
	}
	return got
}

// outcome returns the part of a reply by which operations are counted.
func outcome(got any) string {
	switch r := got.(type) {
	case backend.AcquireReply:
		return fmt.Sprint(" ", r.Outcome)
	case backend.AdoptReply:
		return fmt.Sprint(" ", r.Verdict)
	case backend.ReleaseReply:
		return fmt.Sprint(" ", r.Released, r.Next.Outcome, r.Parked)
	case backend.Status:
		return " " + string(r.State)
	case backend.ForceClearReply:
		return fmt.Sprint(" ", r.Outcome)
	case backend.ParkReply:
		return fmt.Sprint(" ", r.Outcome)
	case backend.TriggerReply:
		return fmt.Sprint(" ", r.Outcome, r.Older)
	case backend.UnparkReply:
		return fmt.Sprint(" ", r.Removed > 0, len(r.Wake), r.Count > 0)
	case nil:
		return ""
	default:
		return fmt.Sprint(" ", r)
	}
}

func (c *compared) hear() {
	for _, l := range c.lockers {
		if l.take != nil {
			for _, n := range l.take() {
				text := map[backend.Event]string{backend.EventTurn: " w", backend.EventRevoked: " v", backend.EventWake: " p", backend.EventCooling: " c"}[n.Event] + n.Request
				if n.Event == backend.EventCooling {
					text += fmt.Sprint(n.In.Microseconds())
				}
				c.heard = append(c.heard, l.id+text+map[backend.Kind]string{backend.KindExclusive: "x", backend.KindOnce: "o"}[n.Kind]+n.Name)
			}
		}
	}
}

// same compares replies. On a real server KeepLeft may differ by the tolerance.
func (c *compared) same(got, want any) bool {
	g, ok := got.(backend.Status)
	if w, _ := want.(backend.Status); ok {
		if c.spread != nil && c.near(g.KeepLeft.Microseconds(), w.KeepLeft.Microseconds()) {
			g.KeepLeft = w.KeepLeft
		}
		if c.spread != nil && max(g.RateFull, w.RateFull).Microseconds() <= tolerance+c.spread().Microseconds() { // one of the two flows may have ended
			g.RateFull, g.NextTurn = w.RateFull, w.NextTurn
		}
		if !bytes.Equal(g.Record, w.Record) {
			return false
		}
		g.Record, w.Record = nil, nil
		return reflect.DeepEqual(g, w)
	}
	if g, ok := got.(backend.AcquireReply); ok {
		w, _ := want.(backend.AcquireReply)
		if !bytes.Equal(g.Record, w.Record) {
			return false
		}
		g.Record, w.Record = nil, nil
		return reflect.DeepEqual(g, w)
	}
	return reflect.DeepEqual(got, want)
}

func (c *compared) near(a, b int64) bool {
	if c.spread == nil {
		return a == b
	}
	return (a == 0) == (b == 0) && max(a-b, b-a) <= tolerance+c.spread().Microseconds()
}

func (c *compared) compareStored(k backend.Key, want memory.Stored) {
	got := c.space.Look(k.Stored[0])
	x, _ := strconv.ParseInt(want.Fields["x"], 10, 64)
	if want.Fields["s"] == "d" && x != 0 && x <= c.now { // memory removes a record that has ended
		for _, name := range []string{"s", "x", "d", "r", "e", "n"} {
			delete(want.Fields, name)
		}
	}
	if c.peers != nil { // the backend made some of the ids, so only their number is compared
		got.Fields["l"], want.Fields["l"] = strings.Repeat("?", len(got.Fields["l"])), strings.Repeat("?", len(want.Fields["l"]))
		if got.Fields["l"] == "" {
			delete(got.Fields, "l")
		}
	}
	for name, w := range want.Fields {
		if w == "" || w == "0" {
			delete(want.Fields, name)
		} else if name == "x" || name == "d" {
			g, _ := strconv.ParseInt(got.Fields[name], 10, 64)
			if n, _ := strconv.ParseInt(w, 10, 64); want.Fields["s"] == "d" && c.near(g, n) {
				want.Fields[name] = got.Fields[name]
			}
		}
	}
	for _, st := range []memory.Stored{got, want} { // Redis and memory remove marks without effect at different times
		maps.DeleteFunc(st.Woken, func(entry string, at int64) bool {
			_, parked := st.Parked[entry]
			return !parked || at > c.now || at <= c.now-backend.WokenTime.Microseconds()
		})
	}
	if c.spread != nil { // what ends about now has ended on one side
		soon := tolerance + c.spread().Microseconds()
		for _, st := range []memory.Stored{got, want} {
			maps.DeleteFunc(st.Flow, func(field, bucket string) bool {
				full, _, _ := strings.Cut(bucket, " ")
				at, _ := strconv.ParseInt(full, 10, 64)
				return (field == "b" || field == "y") && at <= c.now+soon
			})
		}
		if max(got.FlowTTL, want.FlowTTL) <= soon {
			got.Flow, got.FlowTTL, want.Flow, want.FlowTTL = nil, 0, nil, 0
		}
	}
	switch {
	case got.Plain != want.Plain:
		c.differ("%s is a plain hold: memory %v, server %v", k.Name, got.Plain, want.Plain)
	case !reflect.DeepEqual(got.Fields, want.Fields):
		for name, w := range want.Fields { // keep only the differences
			if got.Fields[name] == w {
				delete(got.Fields, name)
				delete(want.Fields, name)
			}
		}
		c.differ("data of %s: memory %q, server %q", k.Name, got.Fields, want.Fields)
	case !maps.Equal(got.Shares, want.Shares) || !c.near(got.SharesTTL, want.SharesTTL):
		c.differ("shares of %s: memory %v for %d, server %v for %d", k.Name, got.Shares, got.SharesTTL, want.Shares, want.SharesTTL)
	case !maps.Equal(got.Flow, want.Flow) || !c.near(got.FlowTTL, want.FlowTTL):
		c.differ("rate of %s: memory %v for %d, server %v for %d", k.Name, got.Flow, got.FlowTTL, want.Flow, want.FlowTTL)
	case !maps.Equal(got.Waits, want.Waits) || !maps.EqualFunc(got.WaitsTTL, want.WaitsTTL, c.near):
		c.differ("waiting calls of %s: memory %v for %v, server %v for %v", k.Name, got.Waits, got.WaitsTTL, want.Waits, want.WaitsTTL)
	case !slices.Equal(got.Queue, want.Queue):
		c.differ("queue of %s: memory %v, server %v", k.Name, got.Queue, want.Queue)
	case !c.near(got.TTL, want.TTL) || !c.near(got.QueueTTL, want.QueueTTL):
		c.differ("TTLs of %s: memory %d and %d, server %d and %d", k.Name, got.TTL, got.QueueTTL, want.TTL, want.QueueTTL)
	case !maps.Equal(got.Parked, want.Parked) || !c.near(got.ParkedTTL, want.ParkedTTL):
		c.differ("parked entries of %s: memory %v for %d, server %v for %d", k.Name, got.Parked, got.ParkedTTL, want.Parked, want.ParkedTTL)
	case !maps.Equal(got.Triggers, want.Triggers) || !c.near(got.TriggersTTL, want.TriggersTTL):
		c.differ("triggers of %s: memory %v for %d, server %v for %d", k.Name, got.Triggers, got.TriggersTTL, want.Triggers, want.TriggersTTL)
	case !maps.Equal(got.Woken, want.Woken) || len(want.Woken) > 0 && want.WokenTTL <= 0:
		c.differ("woken entries of %s: memory %v, server %v for %d", k.Name, got.Woken, want.Woken, want.WokenTTL)
	}
}

func (c *compared) compareHeard() {
	got, want := c.heard, c.server.heard()
	for _, all := range [][]string{got, want} { // the order counts only within a locker
		slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(a[:26], b[:26]) })
	}
	if !slices.Equal(got, want) {
		c.differ("notifications: memory %v, server %v", got, want)
	}
	c.heard, c.unheard = nil, 0
}

func (c *compared) differ(format string, args ...any) {
	if c.diff == "" {
		c.diff = fmt.Sprintf(format, args...)
	}
}

// report fails the test if there was a difference.
func (c *compared) report(seed uint64) {
	c.t.Helper()
	c.space.Check(c.t)
	if c.diff != "" {
		c.t.Errorf("-args -seed %d: %s\nafter:\n%s", seed, c.diff, strings.Join(c.last, "\n"))
	}
}

func (c *compared) drop(key int) {
	c.log("drop %s", c.keys[key].Name)
	c.space.Remove(c.keys[key].Stored[0])
	c.server.remove(c.keys[key])
}

// virtual has the durations for a server whose clock the test sets. Each TTL ends in some run.
var virtual = timing{
	leases:     []time.Duration{3 * time.Millisecond, 40 * time.Millisecond, time.Second, 30 * time.Second, 90*time.Minute + time.Microsecond},
	retentions: []time.Duration{25 * time.Millisecond, time.Second, 59 * time.Second, time.Minute, 61 * time.Second, 10 * time.Minute, 24 * time.Hour},
	keeps:      []time.Duration{5 * time.Millisecond, time.Second, 30 * time.Second, time.Minute, 10 * time.Minute},
	cooldowns:  []time.Duration{time.Microsecond, 7*time.Millisecond + time.Microsecond, 2 * time.Second, time.Hour + 1500*time.Microsecond},
	parkings:   []time.Duration{30*time.Millisecond + time.Microsecond, 15 * time.Second, 10 * time.Minute, 2 * time.Hour},
	step:       (*compared).stepVirtual,
}

func (c *compared) stepVirtual() {
	span := func(most time.Duration) int64 { return 1 + c.rnd.Int64N(most.Microseconds()) }
	most := 1000
	if c.done%2000 < 1000 { // for a while no data expires, so that much is remembered
		most = 850
	}
	c.done++
	switch i := c.rnd.IntN(most); {
	case i < 300:
	case i < 600:
		c.now += span(3 * time.Millisecond)
	case i < 800:
		c.now += span(60 * time.Millisecond)
	case i < 900:
		c.now += span(time.Second)
	case i < 970:
		c.now += span(40 * time.Second)
	case i < 990:
		c.now += span(70 * time.Second)
	case i < 996:
		c.now += span(30 * time.Minute)
	case i < 998:
		c.now += span(26 * time.Hour)
	case c.peers == nil:
		c.setBack(span(3 * time.Hour))
	}
}

// setBack sets the clock back. The TTLs of the server do not follow. Keys that are free or done are
// removed, because a record that has ended would exist again.
func (c *compared) setBack(d int64) {
	for i, k := range c.keys {
		if f := c.space.Look(k.Stored[0]).Fields; f["s"] != "h" && f["s"] != "r" && f["s"] != "c" && f["s"] != "s" {
			c.drop(i)
		}
		c.server.unmark(k)
	}
	_, _, _ = c.server.run(c.now, sender("").Inspect(&none, backend.NoRecord), none) // brings the TTLs to the current time
	c.log("the clock is set back by %d", d)
	c.now -= d
	c.space.Shift(-d)
	_, _, _ = c.server.run(c.now, sender("").Inspect(&none, backend.NoRecord), none) // TTLs follow the new time from here on
}

// realtime has the durations for a server whose TTLs follow its own clock. Leases are short, and no
// TTL ends in a run. No TTL of data is near a minute or backend.ParkedTTL, because the rules
// compare TTLs with these in whole milliseconds.
var realtime = timing{
	leases:     []time.Duration{300 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond, 30 * time.Second, 2 * time.Hour},
	retentions: []time.Duration{11 * time.Minute, 24 * time.Hour},
	keeps:      []time.Duration{5 * time.Millisecond, 40 * time.Second, 11 * time.Minute},
	cooldowns:  []time.Duration{time.Microsecond, 2*time.Millisecond + time.Microsecond, time.Hour + 1500*time.Microsecond},
	parkings:   []time.Duration{10 * time.Minute, 2 * time.Hour},
}

// stepReal returns a step that follows the real clock. It removes all keys every 5 s, so that no
// TTL ends.
func stepReal() func(*compared) {
	start, base, emptied := time.Now(), time.Now().UnixMicro(), time.Now()
	return func(c *compared) {
		if c.chance(3) {
			time.Sleep(time.Duration(c.rnd.IntN(5000)) * time.Microsecond)
		}
		c.now = base + time.Since(start).Microseconds()
		if c.chance(1) {
			c.drop(c.rnd.IntN(len(c.keys)))
		}
		if time.Since(emptied) > 5*time.Second {
			emptied = time.Now()
			for i := range c.keys {
				c.drop(i)
			}
		}
	}
}

var none = backend.Key{Stored: [2]string{"none", "none:q"}}

func count(t *testing.T, quick, full, campaign int) int {
	t.Helper()
	if *operations != 0 {
		return *operations
	}
	return testlevel.Pick(t, quick, full, campaign)
}

// TestDifferential compares the rules with the scripts on miniredis. Replies, notifications, stored
// data and TTLs are equal.
// Shows: S7, M1
func TestDifferential(t *testing.T) {
	n := count(t, 2_000, 10_000, 1_000_000)
	const lanes = 2
	steps := [lanes]string{"share_step = 500", "share_step = 1"}
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			seed := *seed + uint64(lane)
			tm := virtual
			tm.often = testlevel.Pick(t, 10, 1, 1)
			c := compare(t, seed, newMini(t, scriptTexts(t, [2]string{"share_step = 500", steps[lane]})), tm)
			c.run(n / lanes)
			c.report(seed)
			t.Logf("seed %d, %d keys: %v", seed, len(c.keys), c.counts)
		})
	}
}

// TestDifferentialBackend compares the rules with the backend on Redis, which encodes requests and
// decodes replies.
// Shows: M1
func TestDifferentialBackend(t *testing.T) {
	n, seed := count(t, 1_500, 3_000, 100_000), *seed
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		s, tm := newMini(t, scriptTexts(t)), virtual
		s.bubble = true
		tm.step, tm.often = (*compared).stepBubble, 5
		c := compare(t, seed, s, tm)
		for _, l := range c.lockers {
			rdb := redistest.On(s.m).Client(t)
			b, err := redis.New(rdb, redis.Options{Options: backend.Options{Locker: l.id, Closing: make(chan struct{})}, NoGroups: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			c.peers = append(c.peers, b)
		}
		for i, k := range c.keys {
			c.keys[i] = c.peers[0].Key(k.Kind, k.Name)
		}
		c.now = time.Now().UnixMicro()
		c.run(n)
		c.report(seed)
		t.Logf("seed %d: %v", seed, c.counts)
	})
}

// stepBubble is like stepVirtual with the clock of the bubble, which is never set back.
func (c *compared) stepBubble() {
	before := c.now
	c.stepVirtual()
	time.Sleep(time.Duration(max(c.now-before, 0)) * time.Microsecond)
	c.now = time.Now().UnixMicro()
}

// TestDifferentialReal compares the rules with the scripts on a real server.
// Shows: M1
func TestDifferentialReal(t *testing.T) {
	testlevel.Campaign(t)
	n, seed := count(t, 0, 0, 100_000), *seed
	s := newActual(t, scriptTexts(t, timeArgs))
	tm := realtime
	tm.step, tm.often = stepReal(), 1
	c := compare(t, seed, s, tm)
	c.spread = s.spread
	c.run(n)
	c.report(seed)
	t.Logf("seed %d, TTLs may differ by %v: %v", seed, s.spread(), c.counts)
}

// TestDifferentialFixed runs the same operations each time. proof/planted runs it. The seed is
// one whose operations find all mistakes.
// Shows: M1
func TestDifferentialFixed(t *testing.T) {
	const seed = 5
	tm := virtual
	tm.often = 10
	c := compare(t, seed, newMini(t, scriptTexts(t)), tm)
	c.run(3_000)
	c.report(seed)
}

// mistakes are planted into the scripts. proof/planted plants others into the rules.
var mistakes = []struct {
	name     string
	old, new string
	seed     uint64 // its operations find the mistake soon
}{
	{"token floor", "math.max(greatest + 1, now)", "greatest + 1", 7},
	{"dead waiter", "> 0 or not peers.counts_all", ">= 0", 7},
	{"takeover forgotten", "if not abandoned then call('HSET', hash, 'a', '1') end", "", 7},
	{"attempt of a withdrawn grant", "if k.attempts > 0 then call('HSET', hash, 'n', k.attempts - 1) end", "", 1},
	{"reservation outlives data", "outlive(hash, math.ceil(reservation / 1000) + minute_ms)", "outlive(hash, minute_ms)", 3},
	{"record outlives its end", "if v[1] == done and not v[2] then", "if false then", 1},
	{"fingerprint of a plain hold", "holder_at > at and string.sub(rest, at, holder_at - 1) or nil", "nil", 12},
	{"fingerprint of a plain record", "holder_at > at and string.sub(value, at, holder_at - 1) or nil", "nil", 8},
	{"holder of a plain record", "m = string.sub(value, holder_at, record_at - 1)", "m = ''", 8},
	{"last token of a plain record", "t = first, f = used,", "t = first,", 8},
	{"large plain record", "if #record <= 2048 then", "if true then", 8},
	{"fewer ended ids", "-16 * 26", "-15 * 26", 8},
	{"parked entries of a released key", "and not parking_locker and", "and", 8},
	{"place of a parked entry", "call('ZREM', woken, entry) -- planted:parked-in-its-place", "call('ZADD', parked, now, entry)", 1},
	{"mark of a parked entry", "call('ZREM', woken, entry) -- planted:parked-in-its-place", "", 3},
	{"adoption of a hold", "k.owner ~= from and not mine", "not mine", 4},
	{"adopted id forgotten", "remember(hash, k.ended, from) -- planted:adopted-id-remembered", "", 4},
	{"interim answer of a later hold", "call('HDEL', hash, 'v', 'r')", "call('HDEL', hash, 'v')", 4},
	{"interim answer of another run", "or k.attempts ~= tonumber(attempt)", "", 16},
	{"record with parked entries", "k.parking_locker and parked_ttl or (", "(", 3},
}

// TestDifferentialFindsMistakes compares the rules with scripts that have a mistake. It finds each
// mistake.
// Shows: M1
func TestDifferentialFindsMistakes(t *testing.T) {
	testlevel.Campaign(t)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			tm := virtual
			tm.often = 10
			c := compare(t, m.seed, newMini(t, scriptTexts(t, [2]string{m.old, m.new})), tm)
			if c.run(100_000); c.diff == "" {
				t.Error("no difference was found")
			}
			t.Logf("found after %d operations: %s", c.done, c.diff)
		})
	}
}

// TestDifferentialRestrictionEnds sends a request again that was the first of the queue of a restriction
// to a rate, after its end. A later restriction must not take it for one that is silent.
func TestDifferentialRestrictionEnds(t *testing.T) {
	const key = 2
	tm := virtual
	tm.often = 1
	c := compare(t, 1, newMini(t, scriptTexts(t)), tm)
	request := func(share backend.Share) sentRequest {
		return sentRequest{AcquireRequest: backend.AcquireRequest{Key: &c.keys[key], ID: c.id(), Share: share, Lease: time.Hour, Retention: time.Hour, Timeout: backend.CallTimeout}}
	}
	first := request(backend.Share{Limit: 3, Weight: 1})
	first.Queue = true
	c.sendRestrict(key, backend.Restriction{For: time.Second, Rate: backend.Rate{N: 1, Per: time.Hour, Burst: 1}})
	c.sendAcquire(key, request(first.Share)) // takes the cost
	c.sendAcquire(key, first)
	c.now += 2 * time.Second.Microseconds()
	c.sendAcquire(key, request(backend.Share{Limit: 3, Weight: 2}))
	c.sendAcquire(key, first)
	c.report(1)
}

// TestDifferentialPausedShare sends the first request of the queue again while the key is paused. It is
// not silent then.
func TestDifferentialPausedShare(t *testing.T) {
	const key = 2
	tm := virtual
	tm.often = 1
	c := compare(t, 1, newMini(t, scriptTexts(t)), tm)
	request := func(weight int) sentRequest {
		return sentRequest{AcquireRequest: backend.AcquireRequest{
			Key: &c.keys[key], ID: c.id(), Share: backend.Share{Limit: 2, Weight: weight}, Lease: time.Hour, Retention: time.Hour, Queue: true, Timeout: backend.CallTimeout,
		}}
	}
	first := request(2)
	c.sendAcquire(key, request(1))
	c.sendAcquire(key, first)
	c.sendAcquire(key, first) // becomes the head
	c.lastID = c.id()
	c.send(key, 0, func(b backend.Backend) (any, error) {
		return nil, b.Pause(c.t.Context(), &c.keys[key], time.Minute, "")
	}, ignored, sender("").Pause(&c.keys[key], time.Minute, "", c.lastID))
	c.now += 2 * time.Second.Microseconds()
	c.sendAcquire(key, first)
	c.report(1)
}

// TestDifferentialForgottenTTL remembers an id for a key of which only ended ids are known. Its TTL
// begins again, because Redis drops an empty hash together with its TTL.
func TestDifferentialForgottenTTL(t *testing.T) {
	tm := virtual
	tm.often = 1
	c := compare(t, 1, newMini(t, scriptTexts(t)), tm)
	k, by, day := &c.keys[0], c.lockers[0], 24*time.Hour
	by.take, by.end = by.Subscribe()
	c.server.listen(by.id, true)
	waiter := c.id()
	withdraw := func(id string, keep time.Duration) {
		r := backend.WithdrawRequest{Key: k, ID: id, Retention: keep, Repeated: true}
		c.send(0, 0, func(b backend.Backend) (any, error) {
			b.Withdraw(r)
			return nil, nil
		}, ignored, sender(by.id).Withdraw(&r))
	}
	withdraw(c.id(), time.Minute)
	c.space.Enqueue(*k, by.id, c.now, backend.Share{}, waiter)
	c.server.enqueue(c.now, *k, by.id, c.now, waiter)
	c.lastID = c.id()
	clearing := backend.ClearRequest{Key: k} // reserves the key, which never had a token
	c.send(0, 0, func(b backend.Backend) (any, error) { return b.Clear(c.t.Context(), clearing) }, func(r []any) (any, error) {
		return wire.DecodeClear(r)
	}, sender("").Clear(&clearing, c.lastID))
	withdraw(waiter, day)
	c.now += time.Second.Microseconds()
	ending := backend.ReleaseRequest{Key: k, ID: c.id(), Retention: day, Repeated: true}
	c.send(0, 0, c.releasing(&ending), ended, sender(by.id).Release(&ending, 0, new(wire.Room)))
	c.compareHeard()
	c.report(1)
}
