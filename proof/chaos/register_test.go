package chaos_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/proof/chaos"
)

// A Register refuses late holds. It notices when two holds increment the value of one read.
func TestRegister(t *testing.T) {
	var r chaos.Register
	add := func(token int64, by string, value int64, ok bool) {
		t.Helper()
		if r.Write(token, by, value) != ok {
			t.Errorf("write of %s under %d: accepted %v", by, token, !ok)
		}
	}
	add(5, "a", 1, true)
	add(5, "a", 2, true)
	add(5, "b", 3, false) // another hold with the same token
	if _, ok := r.Read(7, "c"); !ok {
		t.Error("a read under a greater token is refused")
	}
	add(6, "b", 3, false) // late: c has read
	add(5, "a", 3, false)
	add(7, "c", 3, true)
	if accepted, refused, overlaps := r.Counts(); accepted != 3 || refused != 3 || overlaps != 1 || r.Check() != nil {
		t.Errorf("%d accepted, %d refused, %d overlaps, %v", accepted, refused, overlaps, r.Check())
	}
	add(8, "d", r.Value(), true) // d has read before c wrote
	if r.Check() == nil {
		t.Error("a lost increment is not noticed")
	}
}
