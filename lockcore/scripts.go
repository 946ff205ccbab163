package lockcore

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts are constants: nothing of a key or a caller ever becomes part of their text.
var (
	acquireScript  = load("acquire")
	renewScript    = load("renew")
	releaseScript  = load("release")
	rotateScript   = load("rotate")
	leaveScript    = load("leave")
	completeScript = load("complete")
	revokeScript   = load("revoke")
	clearScript    = load("clear")
	inspectScript  = load("inspect")
)

// script is a text and how it is sent: boxed once, not for each call.
type script struct {
	*redis.Script
	sha, text []any
}

// load puts lease.lua, which loads the hash, before the file called name.
func load(name string) *script {
	var text []byte
	for _, file := range []string{"lease", name} {
		b, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // the files are embedded
		}
		text = append(text, b...)
	}
	s := redis.NewScript(string(text))
	return &script{Script: s, sha: []any{"evalsha", s.Hash()}, text: []any{"eval", string(text)}}
}
