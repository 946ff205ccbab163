package cronmw_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// The outcomes that guard has too keep their values and texts. All other outcomes have different
// values.
func TestOutcomesOfGuard(t *testing.T) {
	for ours, guards := range map[cronmw.Outcome]guard.Outcome{
		cronmw.NotRun: guard.NotRun, cronmw.Ran: guard.Ran, cronmw.TookOver: guard.TookOver,
	} {
		if guard.Outcome(ours) != guards || ours.String() != guards.String() {
			t.Errorf("%d %v, want %d %v", int(ours), ours, int(guards), guards)
		}
	}
	for want, o := range map[string]cronmw.Outcome{
		"elsewhere": cronmw.Elsewhere, "skipped": cronmw.Skipped, "late": cronmw.Late, "early": cronmw.Early,
		"abandoned": cronmw.Abandoned, "Outcome(3)": cronmw.Outcome(guard.Replayed),
	} {
		if o.String() != want || guard.Outcome(o) < guard.Replayed {
			t.Errorf("%d %v, want %s", int(o), o, want)
		}
	}
}
