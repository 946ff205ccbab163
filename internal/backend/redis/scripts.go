package redis

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts are constants. No part of a key or of an argument becomes part of their text.
var (
	acquireScript  = load("plain_acquire", "plain", "number", "done", "lease", "grant", "sweep", "acquire").counts(0, 7)
	renewScript    = load("plain", "lease", "renew").counts(0, 0)
	releaseScript  = load("plain_release", "plain", "lease", "pass", "release")
	rotateScript   = load("plain", "number", "lease", "load", "grant", "pass", "free", "rotate").counts(1, 14)
	leaveScript    = load("plain", "number", "lease", "load", "pass", "free", "sweep", "shares", "leave")
	completeScript = load("plain_complete", "plain", "number", "lease", "load", "pass", "complete").counts(0, 0)
	adoptScript    = load("plain", "number", "lease", "load", "grant", "pass", "adopt").counts(0, 7)
	interimScript  = load("plain", "number", "lease", "load", "interim")
	revokeScript   = load("plain", "number", "lease", "load", "pass", "sweep", "revoke")
	clearScript    = load("plain", "number", "lease", "load", "pass", "free", "sweep", "shares", "clear")
	forceScript    = load("plain", "number", "lease", "load", "grant", "pass", "force_clear")
	dealScript     = load("deal")
	inspectScript  = load("plain", "number", "lease", "load", "parked", "sweep", "inspect")
	parkScript     = load("plain", "number", "lease", "load", "pass", "parked", "park")
	unparkScript   = load("lease", "parked", "unpark")
	callScript     = load("call_waker")

	acquireShareScript = load("plain", "number", "lease", "load", "grant", "pass", "sweep", "shares", "acquire_share").counts(0, 8)
	releaseShareScript = load("plain", "number", "lease", "load", "pass", "sweep", "shares", "release_share")
	renewShareScript   = load("plain", "number", "lease", "load", "pass", "sweep", "shares", "renew_share").counts(0, 0)
)

// scripts contains all scripts by the names of their files.
var scripts = map[string]*script{
	"acquire": acquireScript, "renew": renewScript, "release": releaseScript, "rotate": rotateScript, "leave": leaveScript,
	"complete": completeScript, "revoke": revokeScript, "clear": clearScript, "force_clear": forceScript, "inspect": inspectScript, "deal": dealScript,
	"adopt": adoptScript, "interim": interimScript, "park": parkScript, "unpark": unparkScript, "call_waker": callScript,
	"acquire_share": acquireShareScript, "release_share": releaseShareScript, "renew_share": renewShareScript,
}

// Scripts returns all scripts by the names of their files.
func Scripts() map[string]*redis.Script {
	all := map[string]*redis.Script{}
	for name, s := range scripts {
		all[name] = s.Script
	}
	return all
}

// Texts returns the full texts of all scripts by the names of their files.
func Texts() map[string]string {
	all := map[string]string{}
	for name, s := range scripts {
		all[name], _ = s.text[1].(string)
	}
	return all
}

// script is a script with the first arguments of its commands. These are boxed once, not for each
// call.
type script struct {
	*redis.Script
	sha, text []any
	acked     bool // with Acks, its effect counts only after replicas have acknowledged it
	granted   int  // index of the element of its reply that is 1 if replicas must acknowledge the effect
	lease     int  // index of the lease of a grant in its list, in µs; 0: it grants nothing
}

// counts makes a script wait for replicas. WAIT counts only up to the last write of the same
// connection. So a repeat must write too, even if the first copy has already taken effect.
func (s *script) counts(granted, lease int) *script {
	s.acked, s.granted, s.lease = true, granted, lease
	return s
}

// load returns the script that consists of the named files, in this order.
func load(names ...string) *script {
	var text []byte
	for _, file := range names {
		b, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // the files are embedded
		}
		text = append(text, b...)
	}
	s := redis.NewScript(string(text))
	return &script{Script: s, sha: []any{"evalsha", s.Hash()}, text: []any{"eval", string(text)}}
}
