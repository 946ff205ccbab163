package fence

import (
	"context"
	_ "embed" // fence.lua
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	layout  = "holdfast-fence:1:" // prefix of the stored data, with its version
	keep    = 24 * time.Hour      // default of Redis.Keep; a hold is remembered for at least this time
	minKeep = time.Minute
	maxKeep = 366 * 24 * time.Hour
	slack   = time.Minute // permitted difference of clocks
)

//go:embed fence.lua
var scriptText string

// script has a constant text. Keys and arguments are never part of it.
var script = redis.NewScript(scriptText)

// Redis is a fence for keys of a Redis, which need not be the Redis of the lock. It stores the
// newest hold of a key in another key, holdfast-fence:1:{KEY}:KEY, or holdfast-fence:1:{TAG}:KEY if
// the key has a hash tag. Both are in the same slot of a Cluster, so that they are replicated
// together.
//
//   - That data takes about 200 bytes for each key, and has a TTL: a minute more than Keep, and at
//     least 24 h and a minute. After its end, holds that began longer than Keep ago are stale. So
//     no old hold is accepted because a newer one was forgotten.
//   - The clocks of the Redis of the lock and of this Redis may differ by a minute. If they differ
//     by more, and the fence remembers no hold, a new hold may be stale or an old one accepted.
//   - Use another user and another client than for the Locker, because a user with the rights of
//     both could write the keys of the lock. docs/security.md has the rights.
type Redis struct {
	// Client is a client of the Redis that has the resource. With a *redis.Ring the methods return
	// an error.
	Client redis.UniversalClient

	// Keep is the greatest age of a hold that is accepted if the fence remembers no hold of the
	// key. An older hold is stale, because the data of its successor may have expired. Make Keep
	// longer than the time from the beginning of a hold to its first write to a resource. Default:
	// 24 h. 1 min to 366 days.
	//
	// The fence remembers the newest hold for Keep after its last write, but at least for 24 h:
	//
	//   - Writers of a resource may have different Keeps up to 24 h.
	//   - If one of them has a Keep above 24 h, all must have the same Keep. A writer with a
	//     shorter Keep makes the data expire too early, and an old hold is accepted.
	//   - While old holds exist, do not change a Keep that is above 24 h, and do not raise a Keep
	//     to more than 24 h. A hold is old if it began before the last writer with the old value
	//     stopped.
	Keep time.Duration
}

// Do runs one command on key unless the fence has seen a newer hold. From then on older holds are
// stale. It costs one script and one round trip. command is a command whose first argument is its
// only key, such as SET, HSET, INCRBY, LPUSH, DEL or EXPIRE. args are the other arguments, at most
// some thousand. Do returns the reply of the command.
//
//	_, err = f.Do(ctx, hold, "balance:42", "SET", 90)
//
// Errors:
//
//   - A *StaleError: nothing was written.
//   - An error of Redis for the command: the command has not run, but the fence remembers the hold.
//   - No reply: the command may have run. It may have run twice, because go-redis sends it again
//     unless MaxRetries is -1.
//   - A key with a brace but without a hash tag is an error, because no other key is certain to be
//     in its slot.
//
// Errors of Redis and of the network are wrapped in an error that names key.
func (f Redis) Do(ctx context.Context, h Hold, key, command string, args ...any) (reply any, err error) {
	if command == "" {
		return nil, errors.New("fence: Redis.Do: command is empty")
	}
	return f.run(ctx, h, key, append([]any{command}, args...)...)
}

// Advance is [Redis.Do] without a command. Call it before you read a value on which a write
// depends. Otherwise an older hold can write after the read. It returns the same errors as Do.
func (f Redis) Advance(ctx context.Context, h Hold, key string) error {
	_, err := f.run(ctx, h, key)
	return err
}

func (f Redis) run(ctx context.Context, h Hold, key string, command ...any) (any, error) {
	memory, age, err := f.check(h, key)
	if err != nil {
		return nil, err
	}
	keys := []string{memory}
	if len(command) > 0 {
		keys = append(keys, key)
	}
	args := append([]any{h.Token, h.ID, age.Milliseconds(), (max(age, keep) + slack).Milliseconds()}, command...)
	reply, err := script.Run(ctx, f.Client, keys, args...).Slice()
	if err != nil {
		return nil, fmt.Errorf("fence: %q: %w", key, err)
	}
	switch {
	case len(reply) > 0 && reply[0] == int64(1):
		if len(reply) == 1 { // no command, or its reply is nil
			return nil, nil
		}
		return reply[1], nil
	case len(reply) == 2 && reply[0] == int64(0):
		text, _ := reply[1].(string)
		if seen, err := strconv.ParseInt(text, 10, 64); err == nil {
			return nil, h.stale(seen)
		}
	}
	return nil, fmt.Errorf("fence: %q: unexpected reply of Redis: %v", key, reply)
}

// check returns the name of the data of the fence of key, and the greatest age of a hold without
// such data.
func (f Redis) check(h Hold, key string) (memory string, age time.Duration, err error) {
	if f.Client == nil {
		return "", 0, errors.New("fence: Redis.Client is nil")
	}
	if _, ring := f.Client.(*redis.Ring); ring {
		return "", 0, errors.New("fence: Redis.Client is a *redis.Ring: a key that moves to another server would lose its fence")
	}
	age = f.Keep
	if age == 0 {
		age = keep
	}
	if age < minKeep || age > maxKeep {
		return "", 0, fmt.Errorf("fence: Redis.Keep is %v, must be between %v and %v", f.Keep, minKeep, maxKeep)
	}
	tag, ok := hashTag(key)
	if !ok {
		return "", 0, fmt.Errorf("fence: key is %q, must not be empty, and must have a hash tag if it has braces", key)
	}
	return layout + "{" + tag + "}:" + key, age, h.check()
}

// hashTag returns the part of key that determines its slot in a Cluster. ok is false if no other
// key is certain to be in the same slot.
func hashTag(key string) (tag string, ok bool) {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			return tag, true
		}
	}
	return key, key != "" && !strings.ContainsAny(key, "{}")
}
