package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// TestMain lets the smoke tests start this binary as their workers.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		fmt.Fprintln(os.Stderr, work(os.Stdin, os.Stdout))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// at returns a record of process 0. Times are in ns.
func at(t int64, o op, account, id string, token int64) record {
	return record{event: event{Op: o, Task: id, Account: account, Token: token, At: t}}
}

// The hot tasks of a load are spread evenly, and each account has its part of the tasks.
func TestTasks(t *testing.T) {
	l := load{hot: 3, hotTasks: 10, others: 30, hold: 2, otherHold: 1}
	count, last := map[string]int{}, -1
	ids := map[string]bool{}
	for i, task := range l.tasks() {
		count[task.Account]++
		ids[task.ID] = true
		if strings.HasPrefix(task.Account, "hot") {
			if gap := i - last; last >= 0 && gap != 4 || task.Hold != 2 {
				t.Errorf("task %d: %+v, %d after the last hot one", i, task, gap)
			}
			last = i
		}
	}
	if len(ids) != 40 || len(count) != 33 || count["hot0"] != 4 || count["hot1"] != 3 || count["hot2"] != 3 {
		t.Errorf("%d tasks: %v", len(ids), count)
	}
}

// The table of holds stays within the time that its documentation names, also if each run under
// wait reaches its limit.
func TestHoldsAreBounded(t *testing.T) {
	o, err := parseOptions([]string{"-table", "holds"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var least time.Duration
	loads, policies, n := o.plan()
	for _, l := range loads {
		if l.otherHold = min(l.hold, 50*time.Millisecond); l.work() > 40*time.Second || l.hot+l.others != 1000 {
			t.Errorf("%v: %v of work, %d others", l, l.work(), l.others)
		}
		least += l.least() * time.Duration(len(policies)*n)
	}
	if len(loads) != 9 || least > 6*time.Minute {
		t.Errorf("%d loads, at least %v", len(loads), least)
	}
}

// A result has the last end of each sort of tasks, the end of each hot account, and the tasks that
// ran again or beside another one.
func TestJudge(t *testing.T) {
	res := result{load: load{policy: policyWait, hot: 2, hotTasks: 3, others: 1}}
	res.judge([]record{
		at(1, opDelivered, "hot0", "a", 0), at(2, opBegan, "hot0", "a", 1), at(3, opDelivered, "hot0", "b", 0), at(4, opLeft, "hot0", "b", 0),
		at(5, opBegan, "hot1", "c", 1), at(6, opEnded, "hot0", "a", 1), at(7, opEnded, "hot1", "c", 1),
		at(8, opBegan, "other0", "d", 1), at(9, opEnded, "other0", "d", 1),
		at(10, opDelivered, "hot0", "b", 0), at(11, opBegan, "hot0", "b", 2), at(12, opBegan, "hot0", "a", 3), at(13, opEnded, "hot0", "b", 2), at(14, opEnded, "hot0", "a", 3),
		at(15, opBegan, "backlog0", "e", 1), at(16, opEnded, "backlog0", "e", 1),
		{event: event{Op: opSent, Sent: 30}},
		{event: event{Op: opSent, Sent: 3}},
	}, time.Unix(0, 0))
	if !slices.Equal(res.accounts, []time.Duration{7, 13}) || res.hotDone != 3 || res.hotLast != 13 || res.othersDone != 1 || res.othersLast != 9 || res.backlogDone != 1 {
		t.Errorf("%+v", res)
	}
	if res.overlaps != 1 || res.repeats != 1 || math.Abs(res.delivered-1) > 1e-9 || res.sent != 11 {
		t.Errorf("%+v", res)
	}
	if err := (rounds{res}).check(); err == nil || !strings.Contains(err.Error(), "1 overlaps") {
		t.Errorf("check: %v", err)
	}
}

// A span ends with its event, or at the death of its process. Otherwise it has no end.
func TestSpans(t *testing.T) {
	killed := at(5, opBegan, "x", "b", 2)
	killed.process = 1
	ss := spans([]record{
		at(1, opBegan, "x", "a", 1), at(4, opEnded, "x", "a", 1), killed,
		at(9, opBegan, "x", "c", 3), at(11, opLost, "x", "c", 3), at(10, opBegan, "x", "b", 4),
	}, map[int]int64{1: 8})["x"]
	var got []string
	for _, s := range ss {
		got = append(got, fmt.Sprintf("%s%d %d %t %d %s", s.task, s.token, s.begin, s.end == forever, s.end%100, s.how))
	}
	if want := []string{"a1 1 false 4 ended", "b2 5 false 8 began", "c3 9 false 11 lost", "b4 10 true 7 began"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if pairs := overlaps(ss); len(pairs) != 1 || pairs[0][0].task != "c" {
		t.Errorf("overlaps: %v", pairs)
	}
}

// A gap begins when the key is free and no worker has one of its tasks, whichever is later.
func TestGaps(t *testing.T) {
	ss := []span{{begin: 0, end: 10}, {begin: 12, end: 20}, {begin: 30, end: 40}, {begin: 50, end: 60}, {begin: 70, end: 80}}
	away := absences([]record{
		at(5, opLeft, "x", "a", 0), at(11, opDelivered, "x", "a", 0), // woken while the first ran
		at(25, opLeft, "x", "b", 0), at(29, opDelivered, "x", "b", 0), // parked after the second had ended
		at(62, opLeft, "x", "c", 0), at(65, opLeft, "x", "d", 0), // two, never delivered
	})["x"]
	var got []string
	for _, g := range gaps(ss, away) {
		got = append(got, fmt.Sprint(g.from, g.to))
	}
	if want := []string{"10 12", "25 30", "62 70"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The verdict of a soak distinguishes a handler that lost its lease from two runs at once, and
// finds a token that does not grow.
func TestVerdict(t *testing.T) {
	v := judgeSoak([]record{
		at(1, opBegan, "x", "a", 1), at(2, opLeft, "x", "b", 0), at(10, opLost, "x", "a", 1), at(9, opBegan, "x", "b", 2), at(11, opEnded, "x", "b", 2),
		at(20, opBegan, "x", "c", 3), at(21, opBegan, "x", "d", 3), at(22, opEnded, "x", "c", 3), at(23, opEnded, "x", "d", 3),
	}, nil, []absence{{8, 9}})
	if v.late != 1 || v.longest != 1 || v.overlaps != 1 || v.stale != 1 || v.lost != 1 || v.runs != 3 {
		t.Errorf("%+v", v)
	}
	if err := v.check(); err == nil || !strings.Contains(err.Error(), "1 overlaps, 1 fencing tokens") {
		t.Errorf("check: %v", err)
	}
}

// The median decides on a mark, and the worst round on a figure that must be 0. A figure of
// unfinished tasks is above every mark.
func TestMarks(t *testing.T) {
	for _, tt := range []struct {
		m    mark
		want []string
	}{
		{mark{"m", 1.2, []float64{1.1, 9, 1.0}}, []string{"m", "1.10 (1.00–9.00)", "≤ 1.2", "met"}},
		{mark{"m", 1.2, []float64{1.21}}, []string{"m", "1.21", "≤ 1.2", "**missed**"}},
		{mark{"m", 0, []float64{0, 0, 1}}, []string{"m", "0 (0–1)", "0", "**missed**"}},
		{mark{"m", math.NaN(), []float64{3}}, []string{"m", "3.00", "–", "–"}},
	} {
		if got := tt.m.row(); !slices.Equal(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	l := load{policy: policyNone, procs: 1, workers: 1, check: 100 * time.Millisecond, hot: 1, hotTasks: 2, others: 1, hold: time.Second}
	none := rounds{{load: l, othersDone: 1, othersLast: time.Second}}
	l.policy = policyPark
	park := rounds{{load: l, othersDone: 1, othersLast: 2 * time.Second, hotDone: 1, hotLast: time.Second, took: time.Minute}}
	rows := markSheet([]rounds{none, park}).rows
	if len(rows) != 8 || rows[0][3] != "2.00" || rows[1][3] != "+Inf" || rows[1][5] != "**missed**" || rows[6][3] != "1" {
		t.Errorf("%q", rows)
	}
	if got := figures([]rounds{park}); !slices.Contains(got.rows[0], "1 of 2 in 60 s") || len(got.rows[0]) != len(got.head) {
		t.Errorf("%v", got)
	}
}

// The error of parseOptions names all wrong flags.
func TestOptions(t *testing.T) {
	_, err := parseOptions([]string{"-table", "mark", "-policy", "wait,lock", "-hot", "0", "more"}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"mark"`, `"lock"`, "at least 1", `"more"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not say %s", err, want)
		}
	}
}

func needsServer(t *testing.T) {
	t.Helper()
	testlevel.Full(t)
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
}

// Under each policy two processes complete a small load. With a lock the tasks of an account run
// one at a time.
func TestSmoke(t *testing.T) {
	needsServer(t)
	var out strings.Builder
	args := []string{"-hot-tasks", "20", "-others", "20", "-hold", "5ms", "-procs", "2", "-workers", "3"}
	if err := hotkey(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{policyNone, policyWait, policyPark} {
		if !strings.Contains(out.String(), "| "+policy+" | 0.") && !strings.Contains(out.String(), "| "+policy+" | 1.") {
			t.Errorf("no times for %s in\n%s", policy, &out)
		}
	}
}
