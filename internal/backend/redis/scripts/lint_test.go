package scripts_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/scripts"
)

// defined matches the functions and constants of a part.
var defined = regexp.MustCompile(`(?m)^local (?:function )?([\w, ]+)`)

// TestLuacheck runs luacheck on each script with the parts that it includes. A script may leave
// functions of a part unused (211), a parameter may have the name of a value of the script (43), a
// branch may be empty (542), and "not (x >= 0)" also holds for nan (581). luacheck is in Debian's package lua-check. Without it the test is
// skipped, except in the gate.
func TestLuacheck(t *testing.T) {
	program, err := exec.LookPath("luacheck")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	args := []string{"--std", "lua51", "--globals", "redis", "KEYS", "ARGV", "--no-max-line-length", "--no-color", "-q", "--ignore", "43", "542", "581"}
	parts, err := fs.Glob(scripts.Files, "parts/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range parts {
		text, err := fs.ReadFile(scripts.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range defined.FindAllStringSubmatch(string(text), -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				args = append(args, "211/"+strings.TrimSpace(name)) // unused
			}
		}
	}
	files, err := fs.Glob(scripts.Files, "*.lua")
	if err != nil || len(files) == 0 || len(parts) == 0 {
		t.Fatalf("%q, %q, %v", files, parts, err)
	}
	dir := t.TempDir()
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(scripts.Text(strings.TrimSuffix(file, ".lua"))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, "--", ".")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
