package rules_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/rules"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// TestGlob compares patterns with those of a real server.
func TestGlob(t *testing.T) {
	testlevel.Full(t)
	c := redistest.Real(t).Client(t)
	const letters = "aab*?[]^-\\c{}"
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, 1+rnd.IntN(n))
		for i := range b {
			b[i] = letters[rnd.IntN(len(letters))]
		}
		return string(b)
	}
	var names []string
	for range 300 {
		name := word(6)
		names = append(names, name)
		if err := c.Set(t.Context(), name, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for range 5000 {
		pattern := word(8)
		want, err := c.Keys(t.Context(), pattern).Result()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range names {
			if rules.Glob(pattern, name) {
				got = append(got, name)
			}
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%q matches %q, want %q as on the server", pattern, got, want)
		}
	}
}
