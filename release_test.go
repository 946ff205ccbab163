package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The notes of a release are its section of the changelog. A version without a section, without a
// date or without notes is an error.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	text := "# Changelog\n\n## 1.3.0 (not released yet)\n\nsoon\n\n## 1.2.10 (2026-12-02)\n\n### New\n\n- ten\n\n## 1.2.1 (2026-12-01)\n\n- one\n\n## 1.2.0 (2026-11-30)\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"v1.2.10": "### New\n\n- ten\n", "v1.2.1": "- one\n", "1.2.1": "- one\n", "v1.2.0": "", "v1.3.0": "", "v1.2": "", "v1.1.0": "",
	} {
		got, err := exec.CommandContext(t.Context(), ".ci/notes", version, file).Output()
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
}
