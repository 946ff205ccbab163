//go:build unix

package sqltest_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// On each server the example inventory has the documented result: its controls are wrong, and all
// other strategies are right. It removes its data.
func TestInventory(t *testing.T) {
	testlevel.Full(t)
	program := filepath.Join(t.TempDir(), "inventory")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../../examples/inventory"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	onServers(t, func(t *testing.T, s *server) {
		address := "mysql://" + s.dsn(s.dir, "postgres")
		list := "SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'holdfast%'"
		if s == postgres {
			address = "postgres:///postgres?user=postgres&host=" + s.dir
		}
		rdb := redistest.Real(t)
		out, err := exec.CommandContext(t.Context(), program, "-redis", rdb.Addr(), "-db", address).CombinedOutput()
		if err != nil || bytes.Count(out, []byte("   right\n")) != 7 || !strings.Contains(string(out), "wrong, as expected") {
			t.Errorf("%v\n%s", err, out)
		}
		if keys := rdb.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("keys are left in Redis: %q", keys)
		}
		t.Logf("\n%s", out)
		var left int
		if err := s.admin.QueryRowContext(t.Context(), list).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d schemas or databases are left, %v", left, err)
		}
	})
}
