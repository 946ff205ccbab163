package security_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// fenceRights are the rights that docs/security.md publishes. balance:* and INCRBY belong to the
// data of the user.
const fenceRights = "~holdfast-fence:1:* ~balance:* resetchannels -@all +eval +evalsha +time +get +set +incrby"

const balanceFence = "holdfast-fence:1:{balance:42}:balance:42"

// newHold returns a hold with a token that is n microseconds after the present time.
func newHold(n int64, id string) fence.Hold {
	return fence.Hold{Key: "account:42", Token: time.Now().UnixMicro() + n, ID: id}
}

// fenced uses all commands of a fence: it advances a new key, writes, stores its hold, and refuses
// an older hold.
func fenced(ctx context.Context, rdb redis.UniversalClient) error {
	f, old, h := fence.Redis{Client: rdb}, newHold(0, "a"), newHold(1000, "b")
	if err := f.Advance(ctx, old, "balance:42"); err != nil {
		return err
	}
	for range 2 {
		if _, err := f.Do(ctx, h, "balance:42", "INCRBY", 5); err != nil {
			return err
		}
	}
	if _, err := f.Do(ctx, old, "balance:42", "INCRBY", 7); !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("an older hold: %w", err)
	}
	return nil
}

// With the published rights, nothing that a fence does is denied. Without any one of them, that
// right is denied by its name, with an error that names the fenced key.
// Shows: F5
func TestFenceRightsAreLeast(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	run := func(rules string) ([]string, error) {
		check(t, s.Client(t).FlushAll(t.Context()).Err())
		check(t, s.Client(t).ScriptFlush(t.Context()).Err())
		setUser(t, s, rules)
		err := fenced(t.Context(), s.Client(t, asJob))
		return denials(t, s), err
	}
	if denied, err := run(fenceRights); err != nil || len(denied) > 0 {
		t.Errorf("denied: %q, %v", denied, err)
	}
	if v, err := s.Client(t).Get(t.Context(), "balance:42").Result(); v != "10" {
		t.Errorf("inconclusive: the balance is %q, %v", v, err)
	}
	keys := map[string]string{"~holdfast-fence:1:*": balanceFence, "~balance:*": "balance:42"}
	for right := range strings.FieldsSeq(fenceRights) {
		if right == "-@all" || right == "resetchannels" {
			continue
		}
		fewer := slices.DeleteFunc(strings.Fields(fenceRights), func(r string) bool { return r == right })
		denied, err := run(strings.Join(fewer, " "))
		want := keys[right]
		if want == "" {
			want = right[1:]
		}
		if !slices.Equal(denied, []string{want}) {
			t.Errorf("without %s these are denied: %q", right, denied)
		}
		if err == nil || !strings.HasPrefix(err.Error(), `fence: "balance:42": `) {
			t.Errorf("without %s: %v", right, err)
		}
	}
	if denied, _ := run(leastRights); len(denied) == 0 {
		t.Error("the rights of a Locker are sufficient, so the recipe is not needed")
	}
}

// A client that may write the data of a fence can admit an old hold and refuse new ones. That data
// names neither the lock's key nor a hold in the lock's Redis.
func TestFenceMemoryIsTrusted(t *testing.T) {
	ctx, rdb := t.Context(), redistest.Real(t).Client(t)
	f, old, h := fence.Redis{Client: rdb}, newHold(0, "a"), newHold(1000, "b")
	check(t, f.Advance(ctx, h, "balance:42"))
	if v := rdb.Get(ctx, balanceFence).Val(); v != fmt.Sprintf("%d %s", h.Token, h.ID) {
		t.Errorf("the fence has stored %q", v)
	}
	if err := f.Advance(ctx, old, "balance:42"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("inconclusive: %v", err)
	}
	check(t, rdb.Del(ctx, balanceFence).Err())
	if err := f.Advance(ctx, old, "balance:42"); err != nil {
		t.Errorf("after a reset: %v", err)
	}
	check(t, rdb.Set(ctx, balanceFence, "9007199254740991 x", 0).Err())
	if err := f.Advance(ctx, newHold(0, "c"), "balance:42"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("blocked: %v", err)
	}
}
