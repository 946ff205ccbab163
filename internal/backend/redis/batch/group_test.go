package batch_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/batch"
)

// A reply of grant_many.lua has an invalid form. It is an error for all calls of the group, and no
// release counts as done.
func TestGrantManyReply(t *testing.T) {
	const token = "1764000000000000"
	for _, tt := range []struct {
		releases, acquires int
		reply              any
		ok                 bool
	}{
		{1, 1, []any{token}, true},
		{1, 1, []any{token, int64(1), int64(2)}, true},
		{2, 0, []any{""}, true},
		{1, 1, nil, false},
		{1, 1, token, false},
		{1, 1, []any{}, false},
		{1, 1, []any{nil}, false},
		{1, 1, []any{int64(1)}, false},
		{1, 1, []any{""}, false},
		{2, 0, []any{token}, false},
		{1, 1, []any{token, int64(0)}, false},
		{1, 1, []any{token, int64(3)}, false},
		{1, 1, []any{token, int64(2), int64(1)}, false},
		{1, 1, []any{token, int64(2), int64(2)}, false},
		{1, 1, []any{token, "2"}, false},
	} {
		for i, c := range batch.GrantManyReplies(tt.releases, tt.acquires, tt.reply) {
			if (c.Err == nil) != tt.ok || !tt.ok && (c.Retry || c.Reply != nil) {
				t.Errorf("%v: call %d gets %v, %v, retry %v", tt.reply, i, c.Reply, c.Err, c.Retry)
			}
		}
	}
}

// Groups take calls in order, releases first. Calls that have left are not taken.
func TestGroupOrder(t *testing.T) {
	const n = 300
	want := []int{n}
	for i := range n {
		if i%3 > 0 {
			want = append(want, i)
		}
	}
	var got []int
	for _, group := range batch.TakeAll(n, func(i int) bool { return i%3 == 0 && i < n }) {
		if len(group) > 64 {
			t.Errorf("a group has %d calls, want at most 64", len(group))
		}
		got = append(got, group...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the groups have %v, want %v", got, want)
	}
}
