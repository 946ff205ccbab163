package lockcore

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts are constants: nothing of a key or a caller ever becomes part of their text.
var (
	acquireScript  = script("acquire")
	renewScript    = script("renew")
	releaseScript  = script("release")
	rotateScript   = script("rotate")
	leaveScript    = script("leave")
	completeScript = script("complete")
	revokeScript   = script("revoke")
	clearScript    = script("clear")
	inspectScript  = script("inspect")
)

// script is lease.lua, which loads the hash, and then the file called name.
func script(name string) *redis.Script {
	var text []byte
	for _, file := range []string{"lease", name} {
		b, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // the files are embedded
		}
		text = append(text, b...)
	}
	return redis.NewScript(string(text))
}
