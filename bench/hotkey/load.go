package main

import (
	"fmt"
	"time"
)

// The policies.
const (
	policyNone = "none" // no lock
	policyWait = "wait" // Exclusive with default options
	policyPark = "park" // Exclusive with default options, and Parking
)

// load describes a run.
type load struct {
	policy         string
	procs, workers int           // worker processes, and asynq workers in each
	check          time.Duration // TaskCheckInterval

	hot, hotTasks, others int           // number of hot accounts, of their tasks in all, and of other accounts with one task each
	hold, otherHold       time.Duration // of the handler of a hot account, and of any other one
	backlog               int           // tasks of further accounts behind the load, each of backlogHold
	standing              bool          // each backlog task that ends is replaced
}

const backlogHold = 5 * time.Millisecond

// work returns how long the handlers of one hot account take, one after the other.
func (l load) work() time.Duration {
	return time.Duration((l.hotTasks+l.hot-1)/l.hot) * l.hold
}

// least returns a lower bound for the duration of the load: a worker runs one task at a time, and
// with a lock an account does too.
func (l load) least() time.Duration {
	all := time.Duration(l.hotTasks)*l.hold + time.Duration(l.others)*l.otherHold + time.Duration(l.backlog)*backlogHold
	least := all / time.Duration(l.procs*l.workers)
	if l.policy == policyNone {
		return least
	}
	return max(l.work(), least)
}

// task is a task and its payload.
type task struct {
	ID      string        `json:"-"`
	Account string        `json:"account"`
	Hold    time.Duration `json:"hold"`
}

// tasks returns the tasks of the hot accounts and of the others, evenly mixed.
func (l load) tasks() []task {
	var ts []task
	hot, all := 0, l.hotTasks+l.others
	for i := range all {
		if hot*all <= i*l.hotTasks && hot < l.hotTasks {
			account := fmt.Sprint("hot", hot%l.hot)
			ts = append(ts, task{fmt.Sprint(account, "/", hot), account, l.hold})
			hot++
		} else {
			account := fmt.Sprint("other", i-hot)
			ts = append(ts, task{account, account, l.otherHold})
		}
	}
	return ts
}

// backlogTask returns task i of the backlog.
func backlogTask(i int) task {
	account := fmt.Sprint("backlog", i)
	return task{account, account, backlogHold}
}
