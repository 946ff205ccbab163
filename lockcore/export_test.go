package lockcore

import "github.com/redis/go-redis/v9"

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
