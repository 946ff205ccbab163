// Package version reads the version of this module from the build information of the program.
package version

import (
	"runtime/debug"
	"sync"
)

const module = "github.com/holdfast-go/holdfast"

// Unknown is the version of a build without a version: a test, go run inside the module, or a
// replaced module.
const Unknown = "devel"

// String returns the version of this module in the running program, such as "v1.2.3", or [Unknown].
var String = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Unknown
	}
	return Of(info)
})

// Of returns the version of this module in a program with that build information, or [Unknown].
func Of(info *debug.BuildInfo) string {
	m := &info.Main
	for _, dep := range info.Deps {
		if dep.Path == module {
			m = dep
		}
	}
	if m.Path != module || m.Replace != nil || m.Version == "" || m.Version == "(devel)" {
		return Unknown
	}
	return m.Version
}
