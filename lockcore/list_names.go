package lockcore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// inspectAll runs inspect.lua for many keys in one round trip; a key about which the server has only an error gets nil.
func (l *Locker) inspectAll(ctx context.Context, rdb redis.UniversalClient, keys [][2]string, record string) ([]any, error) {
	replies := make([]any, len(keys))
	head := inspectScript.sha
	for range 2 {
		cmds, err := l.pipe(ctx, rdb, head, keys, record)
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
			case !moving(err) && !errors.As(unreadable(err, cmd.Args()), new(*dataError)):
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

func (l *Locker) pipe(ctx context.Context, rdb redis.UniversalClient, head []any, keys [][2]string, record string) ([]*redis.Cmd, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmds := make([]*redis.Cmd, 0, len(keys))
	pipe := rdb.Pipeline()
	for _, k := range keys {
		cmds = append(cmds, pipe.Do(ctx, append(append([]any{}, head...), 2, k[0], k[1], record)...))
	}
	return cmds, l.exec(ctx, pipe)
}

// exec sends a pipeline. With an error its commands may not be read: they were not all sent, or are still under way. What Redis said of one of
// them is no error here.
func (l *Locker) exec(ctx context.Context, pipe redis.Pipeliner) error {
	type sent struct {
		cmds []redis.Cmder
		err  error
	}
	v, err := l.conn.bounded(ctx, func() (any, error) {
		cmds, err := pipe.Exec(ctx)
		return sent{cmds, err}, nil
	})
	if err != nil {
		return err
	}
	s, _ := v.(sent)
	failed := func(cmd redis.Cmder) bool { return cmd.Err() != nil }
	if errors.As(s.err, new(redis.Error)) && slices.ContainsFunc(s.cmds, failed) {
		return nil
	}
	return s.err // that of a connection too, which could not log in: go-redis does not give it to the commands
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
