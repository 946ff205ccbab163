package redistest

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// PlainHold returns the fields of a plain hold as those of a hash. ok is false if value is none, see plain.lua.
func PlainHold(value string) (fields map[string]string, ok bool) {
	parts := strings.SplitN(value, " ", 6)
	if len(parts) < 6 || len(parts[0]) != 27 {
		return nil, false
	}
	end := parts[3]
	if end == "0" {
		token, _ := strconv.ParseInt(parts[1], 10, 64)
		lease, _ := strconv.ParseInt(parts[2], 10, 64)
		end = strconv.FormatInt(token+lease, 10)
	}
	return map[string]string{"s": "h", "h": parts[0][1:], "t": parts[1], "d": parts[2], "x": end, "o": parts[4], "m": parts[5]}, true
}

// Fields returns the fields of a key, by the name of its hash.
func Fields(ctx context.Context, rdb redis.Cmdable, hash string) (map[string]string, error) {
	if fields, ok := PlainHold(rdb.Get(ctx, hash).Val()); ok {
		return fields, nil
	}
	return rdb.HGetAll(ctx, hash).Result()
}

// Unfold makes a hash of a plain hold, so that a test can change its fields.
func Unfold(ctx context.Context, rdb redis.Cmdable, hash string) error {
	fields, ok := PlainHold(rdb.Get(ctx, hash).Val())
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

// Fields returns the fields of a key without a command. It reads in several steps, between which a script may run. So it
// reads until two results are equal.
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
	value, _ := m.Redis.Get(hash) // an error means that it is no string
	if fields, ok := PlainHold(value); ok {
		return fields
	}
	fields := map[string]string{}
	names, _ := m.Redis.HKeys(hash) // an error means that it is no hash
	for _, name := range names {
		fields[name] = m.Redis.HGet(hash, name)
	}
	return fields
}
