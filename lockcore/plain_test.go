package lockcore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// An exclusive key that only its holder knows is a string in Redis, also after a renewal. A call of another Locker makes
// a hash of it. Nothing is left of either after the release.
func TestPlainHold(t *testing.T) {
	t.Parallel()
	rdb := redistest.Real(t).Client(t)
	l, other := lockerOn(t, rdb, lockcore.Options{}), lockerOn(t, rdb, lockcore.Options{})
	hash := storedNames(lockcore.KindExclusive, "k")[0]
	for _, met := range []bool{false, true} {
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		ok(t, le.Extend(t.Context(), time.Hour))
		kind := "string"
		if met {
			if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
				t.Fatal(err)
			}
			kind = "hash"
		}
		if got := rdb.Type(t.Context(), hash).Val(); got != kind {
			t.Errorf("met %v: the key is a %s, want a %s", met, got, kind)
		}
		if left := rdb.PTTL(t.Context(), hash).Val(); left < 25*time.Hour-time.Minute || left > 25*time.Hour+time.Minute {
			t.Errorf("met %v: the TTL is %v, want an hour and a day", met, left)
		}
		fields, err := redistest.Fields(t.Context(), rdb, hash)
		if err != nil || fields["t"] != fmt.Sprint(le.Token()) || fields["o"] != l.ID() {
			t.Errorf("met %v: stored is %v, %v", met, fields, err)
		}
		ok(t, le.Release(t.Context()))
		if n := rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("met %v: %d keys are left", met, n)
		}
	}
}

// A grant that may have a late duplicate is never released as a plain hold: its id is remembered.
func TestPlainHoldRepeated(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	l, faults, _ := w.locker(lockcore.Options{})
	f := faults.CutAnswer(locktest.Script("acquire"))
	le := w.must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
	select {
	case <-f.Struck():
	default:
		t.Fatal("no reply was cut")
	}
	ok(t, le.Release(t.Context()))
	fields, err := redistest.Fields(t.Context(), w.rdb, storedNames(lockcore.KindExclusive, "k")[0])
	if err != nil || fields["l"] == "" || fields["s"] != "" {
		t.Errorf("after the release %v, %v is stored, want the id of the grant", fields, err)
	}
}
