package memory_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const synced = "synced" // a channel: its message arrives after all earlier ones

// mini is a miniredis whose clock the test sets. Commands are dispatched without a connection,
// which is twice as fast.
type mini struct {
	t        *testing.T
	m        *miniredis.Miniredis
	texts    map[string]string
	peer     *server.Peer
	out      bytes.Buffer
	sub      *miniredis.Subscriber
	messages chan string
	bubble   bool // the clock is that of the bubble, so enqueue does not set it
}

func newMini(t *testing.T, texts map[string]string) *mini {
	t.Helper()
	s := &mini{t: t, m: redistest.Bubble(t).Redis, texts: texts, messages: make(chan string, 4096)}
	conn, err := s.m.Dial() // starts the server
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	s.peer = server.NewPeer(bufio.NewWriter(&s.out))
	s.sub = s.m.NewSubscriber()
	s.sub.Subscribe(synced)
	t.Cleanup(s.sub.Close)
	go func() { // ends with the subscriber
		for m := range s.sub.Messages() {
			if m.Channel == synced {
				s.messages <- ""
			} else {
				s.messages <- m.Channel + " " + m.Message
			}
		}
	}()
	return s
}

func (s *mini) run(now int64, c wire.Command, key backend.Key) (any, memory.Stored, error) {
	s.m.SetTime(time.UnixMicro(now))
	keys, args := c.Texts()
	s.out.Reset()
	s.m.Server().Dispatch(s.peer, slices.Concat([]string{"EVAL", s.texts[c.Name], fmt.Sprint(len(keys))}, keys, args))
	s.peer.Flush()
	v, _, err := parse(s.out.Bytes())
	return v, s.look(key), err
}

func (s *mini) look(key backend.Key) memory.Stored {
	value, _ := s.m.Get(key.Stored[0]) // an error means that there is no value
	st := plainHold(value)
	names, _ := s.m.HKeys(key.Stored[0]) // an error means that there is no hash
	for _, name := range names {
		st.Fields[name] = s.m.HGet(key.Stored[0], name)
	}
	st.Queue, _ = s.m.ZMembers(key.Stored[1])
	st.TTL, st.QueueTTL = s.m.TTL(key.Stored[0]).Microseconds(), s.m.TTL(key.Stored[1]).Microseconds()
	st.Parked, st.ParkedTTL = s.scores(key.Stored[0] + ":p")
	st.Woken, st.WokenTTL = s.scores(key.Stored[0] + ":w")
	st.Shares, st.SharesTTL = s.scores(key.Stored[0] + ":s")
	st.Triggers, st.TriggersTTL = s.scores(key.Stored[0] + ":t")
	st.Waits, st.WaitsTTL = map[string]string{}, map[string]int64{}
	for i := range lockers {
		name := key.Stored[1] + ":" + lockerID(i)
		if text, err := s.m.Get(name); err == nil {
			st.Waits[lockerID(i)], st.WaitsTTL[lockerID(i)] = text, s.m.TTL(name).Microseconds()
		}
	}
	st.Flow, st.FlowTTL = map[string]string{}, s.m.TTL(key.Stored[0]+":f").Microseconds()
	names, _ = s.m.HKeys(key.Stored[0] + ":f")
	for _, name := range names {
		st.Flow[name] = s.m.HGet(key.Stored[0]+":f", name)
	}
	return st
}

// scores returns a sorted set and its TTL in µs.
func (s *mini) scores(name string) (all map[string]int64, ttl int64) {
	all = map[string]int64{}
	set, _ := s.m.SortedSet(name) // an error means that there is no set
	for member, score := range set {
		all[member] = int64(score)
	}
	return all, s.m.TTL(name).Microseconds()
}

// plainHold returns the fields of a plain hold as those of a hash.
func plainHold(value string) memory.Stored {
	if fields, ok := redistest.Plain(value); ok {
		return memory.Stored{Plain: true, Fields: fields}
	}
	return memory.Stored{Fields: map[string]string{}}
}

func (s *mini) remove(key backend.Key) {
	for _, name := range namesOf(key) {
		s.m.Del(name)
	}
}

func (s *mini) unmark(key backend.Key) { s.m.Del(key.Stored[0] + ":w") }

func (s *mini) enqueue(now int64, key backend.Key, locker string, since int64, ids ...string) {
	if !s.bubble {
		s.m.SetTime(time.UnixMicro(now))
	}
	for _, id := range ids {
		if _, err := s.m.ZAdd(key.Stored[1], float64(since), locker+id); err != nil {
			s.t.Fatal(err)
		}
	}
	s.m.SetTTL(key.Stored[1], time.Minute)
}

func (s *mini) listen(locker string, on bool) {
	if on {
		s.sub.Subscribe(channels + locker)
	} else {
		s.sub.Unsubscribe(channels + locker)
	}
}

func (s *mini) heard() (all []string) {
	s.m.Publish(synced, "")
	for m := range s.messages {
		if m == "" {
			return all
		}
		all = append(all, strings.TrimPrefix(m, channels))
	}
	return all
}

// parse reads a value of RESP2.
func parse(b []byte) (v any, rest []byte, err error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, nil, fmt.Errorf("no reply: %q", b)
	}
	if line[0] == '-' {
		return nil, rest, errors.New(string(line[1:]))
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil {
		return string(line[1:]), rest, nil //nolint:nilerr // a status
	}
	switch line[0] {
	case ':':
		return n, rest, nil
	case '$':
		if n < 0 {
			return nil, rest, nil
		}
		return string(rest[:n]), rest[n+2:], nil
	}
	var list []any
	for range n {
		if v, rest, err = parse(rest); err != nil {
			return nil, nil, err
		}
		list = append(list, v)
	}
	return list, rest, nil
}

// actual is a redis-server. The scripts read the time from their arguments. TTLs follow the clock
// of the server.
type actual struct {
	t        *testing.T
	c        *redis.Client
	scripts  map[string]*redis.Script
	sub      *redis.PubSub
	messages <-chan any
	least    int64 // the shortest time in µs from now to the end of a command; most: the longest
	most     int64
}

// timeArgs is an edit of the scripts: their last two arguments are the time.
var timeArgs = [2]string{"call('TIME')", "call('TIME') and {ARGV[#ARGV - 1], ARGV[#ARGV]}"}

func newActual(t *testing.T, texts map[string]string) *actual {
	t.Helper()
	s := &actual{t: t, c: redistest.Real(t).Client(t), scripts: map[string]*redis.Script{}}
	for name, text := range texts {
		s.scripts[name] = redis.NewScript(text)
		if err := s.scripts[name].Load(t.Context(), s.c).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.sub = s.c.Subscribe(t.Context(), synced)
	t.Cleanup(func() { _ = s.sub.Close() })
	s.messages = s.sub.ChannelWithSubscriptions(redis.WithChannelSize(4096), redis.WithChannelSendTimeout(time.Minute))
	<-s.messages
	return s
}

func (s *actual) run(now int64, c wire.Command, key backend.Key) (any, memory.Stored, error) {
	ctx := s.t.Context()
	p := s.c.Pipeline()
	keys, texts := c.Texts()
	var args []any
	for _, text := range texts {
		args = append(args, text)
	}
	cmd := s.scripts[c.Name].EvalSha(ctx, p, keys, append(args, now/1e6, now%1e6)...)
	value, fields, queue := p.Get(ctx, key.Stored[0]), p.HGetAll(ctx, key.Stored[0]), p.ZRange(ctx, key.Stored[1], 0, -1)
	ttl, queueTTL := p.PTTL(ctx, key.Stored[0]), p.PTTL(ctx, key.Stored[1])
	parked, woken := p.ZRangeWithScores(ctx, key.Stored[0]+":p", 0, -1), p.ZRangeWithScores(ctx, key.Stored[0]+":w", 0, -1)
	parkedTTL, wokenTTL := p.PTTL(ctx, key.Stored[0]+":p"), p.PTTL(ctx, key.Stored[0]+":w")
	shares, sharesTTL := p.ZRangeWithScores(ctx, key.Stored[0]+":s", 0, -1), p.PTTL(ctx, key.Stored[0]+":s")
	triggers, triggersTTL := p.ZRangeWithScores(ctx, key.Stored[0]+":t", 0, -1), p.PTTL(ctx, key.Stored[0]+":t")
	flow, flowTTL := p.HGetAll(ctx, key.Stored[0]+":f"), p.PTTL(ctx, key.Stored[0]+":f")
	var waits [lockers]*redis.StringCmd
	var waitsTTL [lockers]*redis.DurationCmd
	for i := range lockers {
		name := key.Stored[1] + ":" + lockerID(i)
		waits[i], waitsTTL[i] = p.Get(ctx, name), p.PTTL(ctx, name)
	}
	_, _ = p.Exec(ctx)
	s.ended(now)
	v, err := cmd.Result()
	st := plainHold(value.Val())
	if !st.Plain {
		st.Fields = fields.Val()
	}
	st.Queue = queue.Val()
	st.TTL, st.QueueTTL = max(ttl.Val(), 0).Microseconds(), max(queueTTL.Val(), 0).Microseconds()
	st.Parked, st.ParkedTTL = scores(parked.Val()), max(parkedTTL.Val(), 0).Microseconds()
	st.Woken, st.WokenTTL = scores(woken.Val()), max(wokenTTL.Val(), 0).Microseconds()
	st.Shares, st.SharesTTL = scores(shares.Val()), max(sharesTTL.Val(), 0).Microseconds()
	st.Triggers, st.TriggersTTL = scores(triggers.Val()), max(triggersTTL.Val(), 0).Microseconds()
	st.Waits, st.WaitsTTL = map[string]string{}, map[string]int64{}
	for i := range lockers {
		if waits[i].Err() == nil {
			st.Waits[lockerID(i)], st.WaitsTTL[lockerID(i)] = waits[i].Val(), waitsTTL[i].Val().Microseconds()
		}
	}
	if st.Flow, st.FlowTTL = flow.Val(), max(flowTTL.Val(), 0).Microseconds(); len(st.Flow) > 0 && flowTTL.Val() == -1 {
		st.FlowTTL = math.MaxInt64 // it has no TTL, and must have one
	}
	return v, st, errors.Join(err, ttl.Err())
}

func scores(set []redis.Z) map[string]int64 {
	all := map[string]int64{}
	for _, z := range set {
		member, _ := z.Member.(string)
		all[member] = int64(z.Score)
	}
	return all
}

// ended records the time from now, which memory used, to the end of the command. TTLs of the server
// follow the wall clock, which may jump.
func (s *actual) ended(now int64) {
	took := time.Now().UnixMicro() - now
	s.least, s.most = min(s.least, took), max(s.most, took)
}

// spread returns by how much TTLs of the server and of memory may differ. A TTL differs by the time
// of the command that set it and by the time of the command that read it.
func (s *actual) spread() time.Duration { return time.Duration(s.most-s.least) * time.Microsecond }

func (s *actual) look(backend.Key) memory.Stored { panic("run returns it") }

func (s *actual) remove(key backend.Key) {
	if err := s.c.Del(s.t.Context(), namesOf(key)...).Err(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *actual) unmark(backend.Key) { panic("its clock is not set back") }

func (s *actual) enqueue(now int64, key backend.Key, locker string, since int64, ids ...string) {
	defer s.ended(now)
	p := s.c.Pipeline()
	for _, id := range ids {
		p.ZAdd(s.t.Context(), key.Stored[1], redis.Z{Score: float64(since), Member: locker + id})
	}
	p.PExpire(s.t.Context(), key.Stored[1], time.Minute)
	if _, err := p.Exec(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *actual) listen(locker string, on bool) {
	change := s.sub.Unsubscribe
	if on {
		change = s.sub.Subscribe
	}
	if err := change(s.t.Context(), channels+locker); err != nil {
		s.t.Fatal(err)
	}
	if m, ok := (<-s.messages).(*redis.Subscription); !ok {
		s.t.Fatalf("received %v, want a subscription", m)
	}
}

func (s *actual) heard() (all []string) {
	if err := s.c.Publish(s.t.Context(), synced, "").Err(); err != nil {
		s.t.Fatal(err)
	}
	for {
		m, ok := (<-s.messages).(*redis.Message)
		switch {
		case !ok:
			s.t.Fatal("the subscription was renewed")
		case m.Channel == synced:
			return all
		default:
			all = append(all, strings.TrimPrefix(m.Channel, channels)+" "+m.Payload)
		}
	}
}
