package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// environment describes the machine and the programs of a run. It does not name the machine.
type environment struct {
	goVersion, redis string
	cpus             int
	versions         map[string]string // of modules
	load             []string          // load averages at the start and at the end, if the system has them
}

func newEnvironment(redis string) environment {
	e := environment{goVersion: runtime.Version(), redis: redis, cpus: runtime.NumCPU(), versions: map[string]string{}}
	e.readLoad()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			e.versions[m.Path] = m.Version
		}
	}
	return e
}

func (e environment) String() string {
	s := fmt.Sprintf("%s, Redis %s on the same machine, %d CPUs, %s/%s", e.goVersion, e.redis, e.cpus, runtime.GOOS, runtime.GOARCH)
	if len(e.load) > 0 {
		s += ", load averages " + strings.Join(e.load, " before and ")
	}
	if len(e.load) == 2 {
		s += " after"
	}
	return s
}

// readLoad adds the load averages of the last 1, 5 and 15 minutes. Only Linux has the file.
func (e *environment) readLoad() {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) >= 3 {
			e.load = append(e.load, strings.Join(f[:3], " "))
		}
	}
}

// versionOf returns the release that was measured.
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

// settings returns the libraries that were measured. The libraries of the scenarios with faults are
// in contenderSheet.
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
