package kills

import (
	"strings"
	"testing"
)

// The judge finds each mistake in a story that has it, and none in a story without one.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		lines, count string
		want         Tally
	}{
		"in order":                        {"2 began 7 -,2 ended 7 1,3 began 7 -,3 ended 7 2", "2", Tally{Runs: 2, Triggers: 2}},
		"a run is repeated":               {"2 began 7 -,2 ended 7 2,2 began 7 -,2 ended 7 2", "2", Tally{Runs: 2, Triggers: 2}},
		"the last run is missing":         {"2 began 7 -,2 ended 7 1", "2", Tally{Runs: 1, Triggers: 2, Lost: 1}},
		"no run":                          {"", "2", Tally{Triggers: 2, Lost: 1}},
		"an older value is the last one":  {"2 ended 7 2,2 ended 7 1", "2", Tally{Triggers: 2, Stale: 1, Lost: 1}},
		"an older value after a newer":    {"2 ended 7 2,2 ended 7 1,2 ended 7 2", "2", Tally{Triggers: 2, Stale: 1}},
		"two runs of a projection":        {"2 began 7 -,3 began 7 -,2 failed 7 -", "0", Tally{Runs: 2, Together: 1}},
		"runs of two projections":         {"2 began 7 -,3 began 8 -,2 failed 7 -", "0", Tally{Runs: 2}},
		"the next run after a failed one": {"2 began 7 -,2 failed 7 -,3 began 7 -", "0", Tally{Runs: 2}},
		"the next run after a kill":       {"2 began 7 -,2 killed - -,3 began 7 -", "0", Tally{Runs: 2, Kills: 1, Cut: 1}},
		"a line comes after the kill":     {"2 killed - -,2 began 7 -,3 began 7 -", "0", Tally{Runs: 2, Kills: 1, Cut: 1}},
		"another process is killed":       {"2 began 7 -,4 killed - -,3 began 7 -", "0", Tally{Runs: 2, Kills: 1, Together: 1}},
	} {
		if got := judge(strings.Split(c.lines, ","), map[string]string{"7": c.count}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
