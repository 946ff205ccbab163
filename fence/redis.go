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
	layout  = "holdfast-fence:1:" // version of what is remembered in Redis
	keep    = 24 * time.Hour      // and the least for which a writer remembers, whatever its own Keep
	minKeep = time.Minute
	maxKeep = 366 * 24 * time.Hour
	slack   = time.Minute // by which clocks may differ
)

//go:embed fence.lua
var scriptText string

// It is a constant: nothing of a key or a caller ever becomes part of its text.
var script = redis.NewScript(scriptText)

// Redis is a fence before keys of a Redis, which need not be that of the lock. What it remembers of a key stands beside it, in the same slot of
// a Cluster, and is replicated together with what was written.
type Redis struct {
	// Client is of the Redis that has the resource. A *redis.Ring is refused. The package's doc has the rights that its user needs.
	Client redis.UniversalClient

	// Keep is how long ago a hold may have begun to be let in where nothing is remembered; an older one is refused, so that none gets in
	// because its successor was forgotten. Default 24 h; 1 min to 366 days. Set it longer than a hold may live before it writes to a resource for
	// the first time.
	//
	// It is also for how long after its last write a resource remembers whose it was, but at least 24 h. So the writers of a resource may differ
	// up to 24 h. A longer Keep must be that of all of them: one with a shorter Keep forgets what the others rely on, and an old hold is let in.
	// Raise it above 24 h, or change it there, only when no hold is left that began before the last writer with the old value has stopped.
	Keep time.Duration
}

// Do runs one command on key if no newer hold was seen there, in one script and one round trip: from then on older holds are refused.
// command is one whose first argument is its only key (SET, HSET, INCRBY, LPUSH, DEL, EXPIRE, …), args are the rest, at most some thousand. It
// returns the command's reply.
//
//	_, err = f.Do(ctx, hold, "balance:42", "SET", 90)
//
// Errors: a *StaleError, and nothing was written; what Redis said of the command, which then was refused, though the hold counts
// as seen; and where there was no reply, it may have run, and may have run twice, for go-redis sends again unless MaxRetries is -1. What Redis
// and the network said is wrapped in an error that names key. A key with a brace but without a hash tag is refused, for nothing else can be in
// its slot.
func (f Redis) Do(ctx context.Context, h Hold, key, command string, args ...any) (reply any, err error) {
	if command == "" {
		return nil, errors.New("fence: Redis.Do: command is empty")
	}
	return f.run(ctx, h, key, append([]any{command}, args...)...)
}

// Advance is Do without a command. Call it before you read what you will write: else an older hold may still write in between. Errors: those of
// Do.
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
	return nil, fmt.Errorf("fence: %q: Redis answered %v", key, reply)
}

// check returns where the fence of key remembers, and how old a hold may be where it does not.
func (f Redis) check(h Hold, key string) (memory string, age time.Duration, err error) {
	if f.Client == nil {
		return "", 0, errors.New("fence: Redis.Client is nil")
	}
	if _, ring := f.Client.(*redis.Ring); ring {
		return "", 0, errors.New("fence: Redis.Client is a *redis.Ring: a key that moves to another server would leave its fence behind")
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

// hashTag is the part of key that says in which slot of a Cluster it is; false if no other key can be made that is in the same one for
// certain.
func hashTag(key string) (tag string, ok bool) {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			return tag, true
		}
	}
	return key, key != "" && !strings.ContainsAny(key, "{}")
}
