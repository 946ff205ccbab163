package redistest

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Plain returns the fields of a plain hold or a plain record as those of a hash. ok is false if
// value is neither, see plain.lua.
func Plain(value string) (fields map[string]string, ok bool) {
	form, names := value[:min(len(value), 1)], []string{"h", "t", "d", "x", "o"}
	switch form {
	case "d":
		names = []string{"e", "t", "f", "g", "m"}
	case "o":
		names = append(names, "g")
	case "h":
	default:
		return nil, false
	}
	parts := strings.SplitN(value[1:], " ", len(names)+1)
	if len(parts) != len(names)+1 || len(parts[0]) != 26 {
		return nil, false
	}
	fields = map[string]string{"s": "h", "m": parts[len(names)]}
	if form != "h" {
		fields["n"] = "1"
	}
	for i, name := range names {
		fields[name] = parts[i]
	}
	rest := parts[len(names)]
	cut := func(name, size string) {
		n, err := strconv.Atoi(size)
		if ok = ok && err == nil && n <= len(rest); !ok {
			return
		}
		if fields[name], rest = rest[:n], rest[n:]; n == 0 {
			delete(fields, name)
		}
	}
	ok = true
	switch form {
	case "d":
		cut("g", fields["g"])
		cut("m", fields["m"])
		fields["s"], fields["r"] = "d", rest
	case "o":
		cut("g", fields["g"])
		fields["m"] = rest
	}
	if fields["x"] == "0" {
		token, _ := strconv.ParseInt(fields["t"], 10, 64)
		lease, _ := strconv.ParseInt(fields["d"], 10, 64)
		fields["x"] = strconv.FormatInt(token+lease, 10)
	}
	return fields, ok
}

// Fields returns the fields of a key, by the name of its hash.
func Fields(ctx context.Context, rdb redis.Cmdable, hash string) (map[string]string, error) {
	if fields, ok := Plain(rdb.Get(ctx, hash).Val()); ok {
		return fields, nil
	}
	return rdb.HGetAll(ctx, hash).Result()
}

// Unfold makes a hash of a plain hold or a plain record, so that a test can change its fields.
func Unfold(ctx context.Context, rdb redis.Cmdable, hash string) error {
	fields, ok := Plain(rdb.Get(ctx, hash).Val())
	if !ok {
		return rdb.HLen(ctx, hash).Err() // it is a hash already
	}
	left := rdb.PTTL(ctx, hash).Val()
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, hash)
		p.HSet(ctx, hash, fields)
		p.PExpire(ctx, hash, max(left, time.Millisecond))
		return nil
	})
	return err
}

// Fields returns the fields of a key without a command. It reads in several steps, between which a
// script may run. So it reads until two results are equal.
func (m *Memory) Fields(hash string) map[string]string {
	for before := m.read(hash); ; {
		now := m.read(hash)
		if maps.Equal(before, now) {
			return now
		}
		before = now
	}
}

func (m *Memory) read(hash string) map[string]string {
	value, _ := m.Redis.Get(hash) // an error means that it is not a string
	if fields, ok := Plain(value); ok {
		return fields
	}
	fields := map[string]string{}
	names, _ := m.Redis.HKeys(hash) // an error means that it is not a hash
	for _, name := range names {
		fields[name] = m.Redis.HGet(hash, name)
	}
	return fields
}

// Unfold does the same as the function [Unfold], without a command.
func (m *Memory) Unfold(hash string) {
	value, _ := m.Redis.Get(hash) // an error means that it is not a string
	fields, ok := Plain(value)
	if !ok {
		return
	}
	ttl := m.Redis.TTL(hash)
	m.Redis.Del(hash)
	for name, field := range fields {
		m.Redis.HSet(hash, name, field)
	}
	m.Redis.SetTTL(hash, ttl)
}
