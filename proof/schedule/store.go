package schedule

import (
	"errors"
	"strconv"
	"strings"
)

// store has the data of a Redis and executes the commands that the scripts use. The caller sets its
// clock. TestCommands compares it with miniredis.
type store struct {
	now     int64 // µs
	keys    map[string]*value
	publish func(channel, message string) int64 // returns the number of receivers
}

// value is a stored value. kind says which of the other fields it uses.
type value struct {
	kind   string // as TYPE returns it
	end    int64  // µs; 0: no TTL
	text   string
	fields []field
	queue  []member // by score and name
}

type field struct{ name, value string }

type member struct {
	score float64
	name  string
}

var (
	errWrongType = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errSyntax    = errors.New("ERR syntax error")
)

// commands are the commands of the store. Each gets its arguments without the name. A reply is nil,
// an int64, a string, a list of these, or an error.
var commands = map[string]func(*store, []string) any{
	"TIME": (*store).time, "TYPE": (*store).kindOf, "EXISTS": (*store).exists, "DEL": (*store).del,
	"PEXPIRE": (*store).pexpire, "PTTL": (*store).pttl, "PUBLISH": (*store).publishTo,
	"GET": (*store).get, "SET": (*store).set,
	"HGET": (*store).hget, "HMGET": (*store).hmget, "HSET": (*store).hset, "HDEL": (*store).hdel,
	"ZADD": (*store).zadd, "ZREM": (*store).zrem, "ZCARD": (*store).zcard, "ZRANGE": (*store).zrange,
	"ZSCORE": (*store).zscore, "ZRANK": (*store).zrank,
}

func (s *store) do(list []string) any {
	f := commands[list[0]]
	if f == nil {
		return errors.New("ERR unknown command " + list[0])
	}
	return f(s, list[1:])
}

// look returns the value of a key, or nil. err reports another kind.
func (s *store) look(key, kind string) (*value, error) {
	v := s.keys[key]
	switch {
	case v == nil:
		return nil, nil
	case v.end != 0 && v.end <= s.now:
		delete(s.keys, key)
		return nil, nil
	case kind != "" && v.kind != kind:
		return nil, errWrongType
	}
	return v, nil
}

func (s *store) create(key, kind string) (*value, error) {
	v, err := s.look(key, kind)
	if v == nil && err == nil {
		v = &value{kind: kind}
		s.keys[key] = v
	}
	return v, err
}

func (s *store) time([]string) any {
	return []any{strconv.FormatInt(s.now/1e6, 10), strconv.FormatInt(s.now%1e6, 10)}
}

func (s *store) kindOf(a []string) any {
	if v, _ := s.look(a[0], ""); v != nil {
		return status(v.kind)
	}
	return status("none")
}

// status is a reply that Lua sees as a table.
type status string

func (s *store) exists(a []string) any {
	v, _ := s.look(a[0], "")
	return count(v != nil)
}

func count(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (s *store) del(a []string) any {
	n := int64(0)
	for _, key := range a {
		v, _ := s.look(key, "")
		n += count(v != nil)
		delete(s.keys, key)
	}
	return n
}

func (s *store) pexpire(a []string) any {
	ms, err := strconv.ParseInt(a[1], 10, 64)
	if err != nil {
		return errors.New("ERR value is not an integer or out of range")
	}
	v, _ := s.look(a[0], "")
	switch {
	case v == nil:
		return int64(0)
	case ms <= 0:
		delete(s.keys, a[0])
	default:
		v.end = s.now + ms*1000
	}
	return int64(1)
}

func (s *store) pttl(a []string) any {
	v, _ := s.look(a[0], "")
	switch {
	case v == nil:
		return int64(-2)
	case v.end == 0:
		return int64(-1)
	}
	return (v.end - s.now) / 1000
}

func (s *store) publishTo(a []string) any { return s.publish(a[0], a[1]) }

func (s *store) get(a []string) any {
	v, err := s.look(a[0], "string")
	switch {
	case err != nil:
		return err
	case v == nil:
		return nil
	}
	return v.text
}

// set supports NX, PX and KEEPTTL.
func (s *store) set(a []string) any {
	old, _ := s.look(a[0], "")
	v := &value{kind: "string", text: a[1]}
	for i := 2; i < len(a); i++ {
		switch strings.ToUpper(a[i]) {
		case "NX":
			if old != nil {
				return nil
			}
		case "KEEPTTL":
			if old != nil {
				v.end = old.end
			}
		case "PX":
			i++
			if i == len(a) {
				return errSyntax
			}
			ms, err := strconv.ParseInt(a[i], 10, 64)
			if err != nil || ms <= 0 {
				return errSyntax
			}
			v.end = s.now + ms*1000
		default:
			return errSyntax
		}
	}
	s.keys[a[0]] = v
	return status("OK")
}
