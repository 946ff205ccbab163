package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts send the same commands as RedissonReadLock, in the same order. A lock is a hash with
// its mode and a counter for each reader. Each hold has one more key, whose TTL is the end of that
// hold.
var (
	readLock = redis.NewScript(`
local call, lock, lease = redis.call, KEYS[1], ARGV[1]
local mode = call('hget', lock, 'mode')
if not mode then
  call('hset', lock, 'mode', 'read')
  call('hset', lock, ARGV[2], 1)
  call('set', KEYS[2] .. ':1', 1)
  call('pexpire', KEYS[2] .. ':1', lease)
  call('pexpire', lock, lease)
  return false
end
if mode ~= 'read' and call('hexists', lock, ARGV[3]) == 0 then return call('pttl', lock) end
local hold = KEYS[2] .. ':' .. call('hincrby', lock, ARGV[2], 1)
call('set', hold, 1)
call('pexpire', hold, lease)
call('pexpire', lock, math.max(call('pttl', lock), lease))
return false`)

	// The reply is kept under a name of the call, in case the call is sent again.
	readUnlock = redis.NewScript(`
local call, lock = redis.call, KEYS[1]
local reply = call('get', KEYS[5])
if reply then return tonumber(reply) end
local function done(n)
  call('set', KEYS[5], n, 'px', ARGV[4])
  return n
end
local mode = call('hget', lock, 'mode')
if not mode then
  call('publish', KEYS[2], ARGV[1])
  return done(1)
end
if call('hexists', lock, ARGV[2]) == 0 then return false end
local holds = call('hincrby', lock, ARGV[2], -1)
if holds == 0 then call('hdel', lock, ARGV[2]) end
call('del', KEYS[3] .. ':' .. (holds + 1))
if call('hlen', lock) > 1 then
  local left = -3
  for _, reader in ipairs(call('hkeys', lock)) do
    for i = tonumber(call('hget', lock, reader)) or 0, 1, -1 do
      left = math.max(left, call('pttl', KEYS[4] .. ':' .. reader .. ':rwlock_timeout:' .. i))
    end
  end
  if left > 0 then
    call('pexpire', lock, left)
    return done(0)
  end
  if mode == 'write' then return done(0) end
end
call('del', lock)
call('publish', KEYS[2], ARGV[1])
return done(1)`)
)

// redisson acquires read locks like Redisson. There are no writers, so no reader waits.
type redisson struct {
	rdb     redis.UniversalClient
	client  string // the id of the process
	callers atomic.Int64
	lease   time.Duration
}

func openRedisson(s setup) (locker, error) {
	return &redisson{rdb: newClient(s), client: rand.Text(), lease: cmp.Or(s.lease, floorLease)}, nil
}

func (l *redisson) lock(ctx context.Context, key string) (held, error) {
	h := &redissonHeld{l: l, key: key, reader: fmt.Sprintf("%s:%d", l.client, l.callers.Add(1))}
	h.timeouts = fmt.Sprintf("{%s}:%s:rwlock_timeout", key, h.reader)
	err := readLock.Run(ctx, l.rdb, []string{key, h.timeouts}, l.lease.Milliseconds(), h.reader, h.reader+":write").Err()
	if err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return nil, fmt.Errorf("bench: a writer has the key, or %w", err)
	}
	return h, nil
}

type redissonHeld struct {
	l                     *redisson
	key, reader, timeouts string
}

// latchKept is how long Redisson keeps the reply of an unlock, with its default timeout and
// retries.
const latchKept = 18 * time.Second

// unlock sends the DEL of the kept reply together with the script. Redisson sends the DEL later, as
// a separate command.
func (h *redissonHeld) unlock(ctx context.Context) error {
	latch := fmt.Sprintf("redisson_unlock_latch:{%s}:%s", h.key, rand.Text())
	pipe := h.l.rdb.Pipeline()
	done := readUnlock.EvalSha(ctx, pipe, []string{h.key, "redisson_rwlock:{" + h.key + "}", h.timeouts, "{" + h.key + "}", latch},
		0, h.reader, "publish", latchKept.Milliseconds())
	pipe.Del(ctx, latch)
	_, err := pipe.Exec(ctx)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return readUnlock.Eval(ctx, h.l.rdb, []string{h.key, "redisson_rwlock:{" + h.key + "}", h.timeouts, "{" + h.key + "}", latch},
			0, h.reader, "publish", latchKept.Milliseconds()).Err()
	}
	if err == nil {
		err = done.Err()
	}
	return err
}
