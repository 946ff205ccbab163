package security_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// refused matches the texts of Redis 7.0, and those of Redis 8 and Valkey.
var refused = regexp.MustCompile("can't run|[Nn]o permissions")

// A call of a group gets the same error as a call alone. Without the right to a command each call
// fails. Without the right to a key only the calls for that key fail.
func TestRightsOfGroups(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for rules, want := range map[string]string{
		leastRights + " -time": "time",
		strings.Replace(leastRights, redistest.Keys, "~holdfast:2:x:{k[0-7]}*", 1): "key",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := redistest.Real(t)
			setUser(t, s, rules)
			l, err := lockcore.New(s.Client(t, asJob), lockcore.Options{})
			check(t, err)
			failed := make([]int, 64)
			var calls sync.WaitGroup
			for i := range failed {
				calls.Go(func() {
					for range 20 {
						le, err := l.Acquire(t.Context(), fmt.Sprint("k", i), lockcore.Terms{Wait: lockcore.NoWait})
						switch {
						case err == nil:
							check(t, le.Release(t.Context()))
						case errors.Is(err, lockcore.ErrUnavailable) && refused.MatchString(err.Error()):
							failed[i]++
						default:
							t.Errorf("k%d: %v", i, err)
						}
					}
				})
			}
			calls.Wait()
			for i, n := range failed {
				denied := want == "time" || want == "key" && i > 7
				if denied != (n == 20) || !denied && n > 0 {
					t.Errorf("k%d failed %d times of 20", i, n)
				}
			}
			check(t, l.Close(t.Context()))
		})
	}
}
