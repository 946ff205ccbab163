package lockcore

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// inspectAll runs inspect.lua for many keys in one round trip; a key about which the server has only an error gets nil.
func (l *Locker) inspectAll(ctx context.Context, rdb redis.UniversalClient, keys [][2]string) ([]any, error) {
	replies := make([]any, len(keys))
	head := inspectScript.sha
	for range 2 {
		cmds, err := l.pipe(ctx, rdb, head, keys)
		if err != nil {
			return nil, err
		}
		forgotten := false
		for i, cmd := range cmds {
			v, err := cmd.Result()
			switch {
			case err == nil:
				replies[i] = v
			case redis.HasErrorPrefix(err, "NOSCRIPT"):
				forgotten = true
			case !moving(err) && !strings.Contains(err.Error(), "WRONGTYPE"):
				return nil, err
			}
		}
		if !forgotten {
			break
		}
		head = inspectScript.text
	}
	return replies, nil
}

// moving says that a key is on its way to another master.
func moving(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

func (l *Locker) pipe(ctx context.Context, rdb redis.UniversalClient, head []any, keys [][2]string) ([]*redis.Cmd, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmds := make([]*redis.Cmd, 0, len(keys))
	pipe := rdb.Pipeline()
	for _, k := range keys {
		cmds = append(cmds, pipe.Do(ctx, append(append([]any{}, head...), 2, k[0], k[1], flag(false))...))
	}
	_, err := l.conn.bounded(ctx, func() (any, error) {
		_, err := pipe.Exec(ctx)
		return nil, err
	})
	if unanswered(err) {
		return nil, err // the commands may not be read
	}
	return cmds, nil
}

// entryOf reads the name of a hash back; ok is false if it is not one of this prefix and layout.
func (l *Locker) entryOf(name string) (e Entry, ok bool) {
	rest, ok := strings.CutPrefix(name, l.prefix+layout)
	if !ok || len(rest) < len("x:{k}") || rest[1:3] != ":{" || rest[len(rest)-1] != '}' {
		return e, false
	}
	switch rest[0] {
	case 'x':
		e.Kind = KindExclusive
	case 'o':
		e.Kind = KindOnce
	default:
		return e, false
	}
	e.Key = unescape(rest[3 : len(rest)-1])
	return e, redisKeys(l.prefix, e.Kind, e.Key)[0] == name
}

// unescape undoes escape; of a name that escape cannot have made it makes anything.
func unescape(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// plain makes a text mean itself in a glob pattern.
func plain(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
