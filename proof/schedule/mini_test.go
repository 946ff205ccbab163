package schedule_test

import (
	"bufio"
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/proof/schedule"
)

// mini runs scripts on miniredis. It passes commands to miniredis without a connection.
type mini struct {
	t       *testing.T
	m       *miniredis.Miniredis
	texts   map[string]string
	peer    *server.Peer
	out     bytes.Buffer
	publish func(channel, message string) int64
}

func newMini(t *testing.T, texts map[string]string) *mini {
	t.Helper()
	s := &mini{t: t, m: redistest.Bubble(t).Redis, texts: texts}
	conn, err := s.m.Dial() // starts the server
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	s.peer = server.NewPeer(bufio.NewWriter(&s.out))
	s.m.Server().SetPreHook(func(p *server.Peer, name string, args ...string) bool {
		if strings.EqualFold(name, "PUBLISH") {
			p.WriteInt(int(s.publish(args[0], args[1])))
			return true
		}
		return false
	})
	return s
}

func (s *mini) OnPublish(f func(channel, message string) int64) { s.publish = f }

func (s *mini) Flush() { s.m.FlushAll() }

func (s *mini) Run(now int64, script string, keys, args []string) (any, error) {
	s.m.SetTime(time.UnixMicro(now))
	s.out.Reset()
	list := append([]string{"EVAL", s.texts[script], fmt.Sprint(len(keys))}, keys...)
	s.m.Server().Dispatch(s.peer, append(list, args...))
	s.peer.Flush()
	v, err := server.ParseReply(bufio.NewReader(&s.out))
	return plain(v), err
}

// plain returns a reply with the types that schedule.Server has.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case server.Simple:
		return string(v)
	case []any:
		list := []any{}
		for _, element := range v {
			list = append(list, plain(element))
		}
		return list
	}
	return v
}

func (s *mini) Keys(now int64) map[string]int64 {
	s.m.SetTime(time.UnixMicro(now))
	all := map[string]int64{}
	for _, key := range s.m.Keys() {
		all[key] = s.m.TTL(key).Microseconds()
	}
	return all
}

// both runs each script on a schedule.Lua and on miniredis, and compares the replies, the
// notifications and the TTLs.
type both struct {
	*schedule.Lua
	m       *mini
	publish func(channel, message string) int64
	heard   []notification // published by the Lua server, and not yet by the other one
	diff    string
	now     int64
	back    bool // the clock was set back, after which miniredis keeps the TTLs as they were
}

type notification struct {
	channel, message string
	receivers        int64
}

func newBoth(t *testing.T, texts map[string]string) *both {
	t.Helper()
	l, err := schedule.NewLua(texts)
	if err != nil {
		t.Fatal(err)
	}
	s := &both{Lua: l, m: newMini(t, texts)}
	l.OnPublish(func(channel, message string) int64 {
		n := notification{channel, message, s.publish(channel, message)}
		s.heard = append(s.heard, n)
		return n.receivers
	})
	s.m.OnPublish(func(channel, message string) int64 {
		if len(s.heard) == 0 || s.heard[0].channel != channel || s.heard[0].message != message {
			s.differ("PUBLISH %s %s, want %v", channel, message, s.heard)
			return 0
		}
		n := s.heard[0].receivers
		s.heard = s.heard[1:]
		return n
	})
	return s
}

func (s *both) OnPublish(f func(channel, message string) int64) { s.publish = f }

func (s *both) Flush() {
	s.Lua.Flush()
	s.m.Flush()
	s.now, s.back = 0, false
}

func (s *both) Run(now int64, script string, keys, args []string) (any, error) {
	v, err := s.Lua.Run(now, script, keys, args)
	if s.back = s.back || now < s.now; s.back {
		s.heard = nil
		return v, err
	}
	want, wantErr := s.m.Run(now, script, keys, args)
	if !reflect.DeepEqual(v, want) || (err == nil) != (wantErr == nil) || len(s.heard) > 0 {
		s.differ("%s %v at %d: %v, %v and %v, want %v, %v", script, args, now, v, err, s.heard, want, wantErr)
	}
	s.Keys(now)
	return v, err
}

func (s *both) Keys(now int64) map[string]int64 {
	ttls := s.Lua.Keys(now)
	if s.back = s.back || now < s.now; s.back {
		return ttls
	}
	s.now = now
	if want := s.m.Keys(now); !reflect.DeepEqual(ttls, want) {
		s.differ("TTLs at %d: %v, want %v", now, ttls, want)
	}
	return ttls
}

func (s *both) differ(format string, args ...any) {
	if s.diff == "" {
		s.diff = fmt.Sprintf(format, args...)
	}
}
