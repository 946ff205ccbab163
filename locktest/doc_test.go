package locktest_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func TestBusy(t *testing.T) {
	locks := locktest.New(t)                         // a Locker in memory, for this test only
	release := locktest.Hold(t, locks, "account:42") // another holder has the key
	_, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.NoWait})
	if !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("error is %v, want ErrBusy", err)
	}
	release()
}
