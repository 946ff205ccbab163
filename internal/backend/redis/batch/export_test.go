package batch

import "github.com/holdfast-go/holdfast/internal/backend/redis/wire"

// GroupedCall is the result of a call of a group.
type GroupedCall struct {
	Reply any
	Err   error
	Retry bool
}

// GrantManyReplies passes a reply of grant_many.lua to a group of releases and then acquires, and
// returns their results.
func GrantManyReplies(releases, acquires int, reply any) (results []GroupedCall) {
	calls := make([]*call, releases+acquires)
	for i := range calls {
		calls[i] = &call{cmd: wire.Command{Script: wire.Acquire}}
		if i < releases {
			calls[i].cmd.Script = wire.Release
		}
	}
	(&group{}).setGrantManyReplies(calls, reply, nil)
	for _, c := range calls {
		results = append(results, GroupedCall{c.reply, c.err, c.retry})
	}
	return results
}

// TakeAll adds n acquires and then a release, and takes all groups. It returns the groups as
// numbers of calls. A call for which left is true leaves before.
func TakeAll(n int, left func(i int) bool) (groups [][]int) {
	var w waitingCalls
	number := map[*call]int{}
	for i := range n + 1 {
		c := &call{cmd: wire.Command{Script: wire.Acquire}}
		if i == n {
			c.cmd.Script = wire.Release
		}
		number[c] = i
		w.add(c)
		if left(i) {
			c.unsent = true
			w.n--
		}
	}
	for w.n > 0 {
		var group []int
		for _, c := range w.take(nil) {
			group = append(group, number[c])
		}
		groups = append(groups, group)
	}
	return groups
}
