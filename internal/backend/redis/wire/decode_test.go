package wire_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// PlainRecord decodes a stored record, and refuses text of any other form.
func TestPlainRecord(t *testing.T) {
	const id, token = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "1700000000000000"
	for stored, want := range map[string][2]string{
		"d" + id + " " + token + " " + token + " 0 0 ":                {"", ""},
		"d" + id + " " + token + " " + token + " 3 5 f 1host\nr \x00": {"r \x00", "f 1"},
	} {
		if record, fingerprint, ok := wire.PlainRecord(stored); !ok || record != want[0] || fingerprint != want[1] {
			t.Errorf("%q: %q, %q, %v, want %q", stored, record, fingerprint, ok, want)
		}
	}
	for _, stored := range []string{
		"", "d", "d ", "d" + id, "o" + id + " 1 1 0 0 ",
		"d" + id[1:] + " 1 1 0 0 ", "d" + id + "A 1 1 0 0 ", // the id
		"d" + id + " 1 1 0", "d" + id + " 1 1 0 x ", "d" + id + " 1 1 -1 0 ", "d" + id + "  1 0 0 ",
		"d" + id + " 1" + token + " 1 0 0 ", "d" + id + " 1 1 0 " + strings.Repeat("9", 20) + " ", // numbers that are too long
		"d" + id + " 1 1 1 2 ab", "d" + id + " 1 1 3 0 ab", // less data than the numbers say
	} {
		if record, fingerprint, ok := wire.PlainRecord(stored); ok {
			t.Errorf("%q: %q, %q", stored, record, fingerprint)
		}
	}
}
