package hotkey_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/hotkey"
)

// runs returns a run of each task of an account or of the others, one after the other. The last one
// ends after n steps.
func runs(account string, n int, step time.Duration) (rs []hotkey.Run) {
	for i := range n {
		at := int64(i) * int64(step)
		r := hotkey.Run{Task: fmt.Sprint(account, i), Account: account, Began: at, Ended: at + int64(step)}
		if account != "hot" {
			r.Account = r.Task
		}
		rs = append(rs, r)
	}
	return rs
}

// The times are taken at the last end, over all processes. A task that runs again counts once. A run
// during another one of its account is an overlap.
func TestJudge(t *testing.T) {
	start := time.Unix(0, 0)
	a := hotkey.Tally{Deliveries: 300, Backlog: 2, Runs: runs("hot", hotkey.HotTasks, time.Millisecond)}
	b := hotkey.Tally{Deliveries: 60, Backlog: 3, Runs: runs("other", hotkey.Others, 2*time.Millisecond)}
	want := hotkey.Result{HotDone: 200 * time.Millisecond, OthersDone: 400 * time.Millisecond, Deliveries: 360, Backlog: 5}
	if got := hotkey.Judge([]hotkey.Tally{a, b}, start); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	a.Runs = append(a.Runs, hotkey.Run{Task: "hot0", Account: "hot", Began: 1, Ended: int64(time.Second)})
	want.Overlaps = hotkey.HotTasks // each later run of the account
	if got := hotkey.Judge([]hotkey.Tally{a, b}, start); got != want {
		t.Errorf("with a run beside the others: got %+v, want %+v", got, want)
	}
}

// If a task has not ended, there is no time at which all of them were done.
func TestJudgeNotEnded(t *testing.T) {
	a := hotkey.Tally{Runs: runs("hot", hotkey.HotTasks-1, time.Millisecond)}
	if got := hotkey.Judge([]hotkey.Tally{a}, time.Unix(0, 0)); got.HotDone != 0 || got.OthersDone != 0 || got.NotEnded != hotkey.Others+1 {
		t.Errorf("got %+v", got)
	}
}
