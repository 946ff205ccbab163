package lockcore

import "github.com/redis/go-redis/v9"

// What tests from outside see of the inside: the layout of Redis, and the scripts by name.
var (
	Escape      = escape
	RedisKeys   = redisKeys
	ScriptFiles = scriptFiles
	Scripts     = map[string]*redis.Script{
		"acquire": acquireScript, "renew": renewScript, "release": releaseScript, "leave": leaveScript, "rotate": rotateScript,
		"complete": completeScript, "revoke": revokeScript, "clear": clearScript, "inspect": inspectScript,
	}
)
