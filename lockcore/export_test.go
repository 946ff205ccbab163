package lockcore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// What tests from outside see of the inside: the layout of Redis, and the scripts by name.
var (
	Escape      = escape
	Unescape    = unescape
	Probe       = probe
	RedisKeys   = redisKeys
	ScriptFiles = scriptFiles
	Scripts     = map[string]*redis.Script{
		"acquire": acquireScript.Script, "renew": renewScript.Script, "release": releaseScript.Script, "leave": leaveScript.Script, "rotate": rotateScript.Script,
		"complete": completeScript.Script, "revoke": revokeScript.Script, "clear": clearScript.Script, "inspect": inspectScript.Script,
	}
)

// MaxCleanups is how many unconfirmed cleanups make requests for new keys wait.
const MaxCleanups = maxCleanups

// PileUp puts n withdrawals into the queue.
func PileUp(l *Locker, n int) {
	for i := range n {
		l.cleanups.add(&cleanup{keys: redisKeys(l.prefix, KindExclusive, fmt.Sprint("pile", i)), id: rand.Text(), keep: freeTTL})
	}
	l.cleanups.report()
}

// Cleanups returns how many cleanups are not confirmed.
func Cleanups(l *Locker) int { return int(l.cleanups.n.Load()) }

// SendOnce sends one command as calls do, and does not repeat it.
func SendOnce(ctx context.Context, l *Locker, key string) error {
	keys := redisKeys(l.prefix, KindExclusive, key)
	if _, _, err := l.conn.run(ctx, l.conn.calls, inspectScript, keys[:], flag(false)); err != nil {
		return unavailable(err)
	}
	return nil
}

func EndWith(ctx context.Context, next dialer, over error) dialer {
	return endWith(ctx, next, new(heldUpDials), over)
}
