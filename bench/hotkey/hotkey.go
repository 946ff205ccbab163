// Package hotkey is the load of the scenario asynq: tasks of one hot account and of many others
// share a queue, and each account runs one task at a time. It compares workers without a lock, with
// asynqmw.Exclusive, and with asynqmw.Exclusive and asynqmw.Parking.
package hotkey

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The policies of a worker.
const (
	None = "no lock"
	Wait = "holdfast"         // asynqmw.Exclusive with its default options
	Park = "holdfast+parking" // the same with asynqmw.Parking
)

// A load, without its backlog. Workers is the number of workers in each process.
const (
	Workers  = 10
	HotTasks = 200 // of the hot account
	Others   = 200 // accounts with one task each
	Tasks    = HotTasks + Others
	Hold     = 50 * time.Millisecond // of each of these tasks

	hot         = "hot" // the hot account
	backlog     = "backlog"
	backlogHold = 5 * time.Millisecond
)

// Load describes a run.
type Load struct {
	Check    time.Duration `json:"check"`    // TaskCheckInterval
	Backlog  int           `json:"backlog"`  // short tasks of further accounts behind the load
	Standing bool          `json:"standing"` // backlog tasks that end are replaced
}

// task is a task and its payload.
type task struct {
	ID      string        `json:"-"`
	Account string        `json:"account"`
	Hold    time.Duration `json:"hold"`
}

// tasks returns the tasks of the hot account and of the others, evenly mixed.
func tasks() (ts []task) {
	for i := range HotTasks {
		other := fmt.Sprint("other", i)
		ts = append(ts, task{fmt.Sprint(hot, i), hot, Hold}, task{other, other, Hold})
	}
	return ts
}

// Tally is what a worker process reports.
type Tally struct {
	Deliveries int   `json:"deliveries"` // of tasks of the hot account
	Backlog    int   `json:"backlog"`    // runs of backlog tasks
	Runs       []Run `json:"runs"`       // of the other tasks
}

// Run is an execution of a task. Times are in ns by the clock of the machine.
type Run struct {
	Task    string `json:"task"`
	Account string `json:"account"`
	Began   int64  `json:"began"`
	Ended   int64  `json:"ended"`
}

// Result has the figures of a run.
type Result struct {
	HotDone, OthersDone time.Duration // from the start to the last end of a task; 0 if some have not ended
	NotEnded            int
	Deliveries          int
	Backlog             int
	Overlaps            int // runs that began during another run of their account
}

// Judge combines the tallies of all processes of a run that began at start.
func Judge(tallies []Tally, start time.Time) (res Result) {
	var runs []Run
	for _, t := range tallies {
		res.Deliveries += t.Deliveries
		res.Backlog += t.Backlog
		runs = append(runs, t.Runs...)
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Began, b.Began) })
	ended, until := map[string]bool{}, map[string]int64{}
	left := map[bool]int{true: HotTasks, false: Others}
	done := map[bool]time.Duration{}
	for _, r := range runs {
		if r.Began < until[r.Account] {
			res.Overlaps++
		}
		until[r.Account] = max(until[r.Account], r.Ended)
		if ended[r.Task] { // asynq delivers at least once
			continue
		}
		ended[r.Task] = true
		isHot := r.Account == hot
		left[isHot]--
		done[isHot] = max(done[isHot], time.Duration(r.Ended-start.UnixNano()))
	}
	if left[true] == 0 {
		res.HotDone = done[true]
	}
	if left[false] == 0 {
		res.OthersDone = done[false]
	}
	res.NotEnded = left[true] + left[false]
	return res
}
