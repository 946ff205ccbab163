package version_test

import (
	"runtime/debug"
	"testing"

	"github.com/holdfast-go/holdfast/internal/version"
)

// The version comes from the build information, at any place of the module in it, and is never
// empty.
func TestOf(t *testing.T) {
	const path = "github.com/holdfast-go/holdfast"
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Path: "example.com/app", Version: "v9.9.9"}, Deps: []*debug.Module{{Path: "x", Version: "v7.0.0"}, {Path: path, Version: "v1.2.3"}}},
		"v1.4.0": {Main: debug.Module{Path: path, Version: "v1.4.0"}},
	} {
		if got := version.Of(info); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
	for _, info := range []*debug.BuildInfo{
		{},
		{Main: debug.Module{Path: path, Version: "(devel)"}},
		{Main: debug.Module{Path: "x", Version: "v9.9.9"}},
		{Deps: []*debug.Module{{Path: path, Version: "v1.0.0", Replace: &debug.Module{Path: "../.."}}}},
	} {
		if got := version.Of(info); got != version.Unknown {
			t.Errorf("%+v: %q, want %q", info, got, version.Unknown)
		}
	}
	if version.String() == "" {
		t.Error("no version")
	}
}
