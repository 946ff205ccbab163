package lockcore

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts are constants: nothing of a key or a caller ever becomes part of their text.
var (
	acquireScript  = load("number", "done", "lease", "grant", "acquire")
	renewScript    = load("lease", "renew")
	releaseScript  = load("lease", "pass", "release")
	rotateScript   = load("number", "lease", "load", "grant", "pass", "free", "rotate")
	leaveScript    = load("number", "lease", "load", "pass", "free", "leave")
	completeScript = load("number", "lease", "load", "pass", "complete")
	revokeScript   = load("number", "lease", "load", "pass", "revoke")
	clearScript    = load("number", "lease", "load", "pass", "free", "clear")
	inspectScript  = load("number", "lease", "load", "inspect")
)

// script is a text and how it is sent: boxed once, not for each call.
type script struct {
	*redis.Script
	sha, text []any
}

// load puts the files called names together.
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
