package lockcore

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts are constants: nothing of a key or a caller ever becomes part of their text.
var (
	acquireScript  = load("grant", "acquire")
	renewScript    = load("renew")
	releaseScript  = load("pass", "release")
	rotateScript   = load("load", "grant", "pass", "rotate")
	leaveScript    = load("load", "pass", "leave")
	completeScript = load("load", "pass", "complete")
	revokeScript   = load("load", "revoke")
	clearScript    = load("load", "pass", "clear")
	inspectScript  = load("load", "inspect")
)

// script is a text and how it is sent: boxed once, not for each call.
type script struct {
	*redis.Script
	sha, text []any
}

// load puts lease.lua and the files called names together.
func load(names ...string) *script {
	var text []byte
	for _, file := range append([]string{"lease"}, names...) {
		b, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // the files are embedded
		}
		text = append(text, b...)
	}
	s := redis.NewScript(string(text))
	return &script{Script: s, sha: []any{"evalsha", s.Hash()}, text: []any{"eval", string(text)}}
}
