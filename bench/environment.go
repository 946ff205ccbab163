package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
)

// environment is what a reader needs to know of where this ran; the machine has no name.
type environment struct {
	goVersion, redis string
	cpus             int
	versions         map[string]string // of modules
}

func newEnvironment(redis string) environment {
	e := environment{goVersion: runtime.Version(), redis: redis, cpus: runtime.NumCPU(), versions: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			e.versions[m.Path] = m.Version
		}
	}
	return e
}

func (e environment) String() string {
	return fmt.Sprintf("%s, Redis %s on the same machine, %d CPUs, %s/%s", e.goVersion, e.redis, e.cpus, runtime.GOOS, runtime.GOARCH)
}

// versionOf names the release that was measured.
func (e environment) versionOf(l library) string {
	switch v := e.versions[l.module]; {
	case l.module == "":
		return "this checkout"
	case v == "":
		return l.module
	default:
		return l.module + " " + v
	}
}

// settings are the libraries that took part; contenderSheet has those of the scenarios with faults.
func (r report) settings() []library {
	var part []library
	for _, l := range libraries {
		if slices.ContainsFunc(r.cells, func(c result) bool {
			s, ok := scenarioNamed(c.Scenario)
			return c.Library == l.name && (!ok || !s.faults())
		}) {
			part = append(part, l)
		}
	}
	return part
}
