// Package scripts has the scripts of the backend on Redis, as texts.
package scripts

import (
	"embed"
	"strings"
)

// Files has the scripts, *.lua, and the functions that they share, parts/*.lua.
//
//go:embed *.lua parts/*.lua
var Files embed.FS

const include = "-- include "

// Text returns the whole text of a script: each line "-- include FILE" is replaced by that file.
func Text(name string) string {
	var text strings.Builder
	for line := range strings.Lines(read(name + ".lua")) {
		if file, ok := strings.CutPrefix(line, include); ok {
			line = read(strings.TrimSpace(file))
		}
		text.WriteString(line)
	}
	return text.String()
}

func read(file string) string {
	text, err := Files.ReadFile(file)
	if err != nil {
		panic(err) // the files are embedded
	}
	return string(text)
}
