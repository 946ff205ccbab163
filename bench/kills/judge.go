package kills

import (
	"fmt"
	"strconv"
)

// Tally is what a run showed.
type Tally struct {
	Kills    int
	Cut      int // runs that were killed
	Triggers int
	Runs     int
	Lost     int // projections whose last value is older than their counter
	Stale    int // values that were written after a newer one
	Together int // runs that began during another run of the projection
	Stray    int // keys that have no TTL, and name a task or a projection
}

// judge returns what a journal and the counters show.
func judge(lines []string, counters map[string]string) (t Tally) {
	type place struct{ pid, key string }
	running, dead, last := map[place]int{}, map[string]bool{}, map[string]int{} // runs; processes; values
	for _, line := range lines {
		var p place
		var event string
		var value int
		_, _ = fmt.Sscan(line, &p.pid, &event, &p.key, &value) // some have no value
		switch event {
		case began:
			t.Runs++
			if dead[p.pid] { // its last command was executed late
				t.Cut++
				continue
			}
			for other, n := range running {
				if other.key == p.key && n > 0 {
					t.Together++
					break
				}
			}
			running[p]++
		case ended, failed:
			if running[p]--; running[p] <= 0 {
				delete(running, p)
			}
			if event == failed {
				continue
			}
			if value < last[p.key] {
				t.Stale++
			}
			last[p.key] = value
		case killed:
			t.Kills++
			dead[p.pid] = true
			for other, n := range running {
				if other.pid == p.pid {
					t.Cut += n
					delete(running, other)
				}
			}
		}
	}
	for key, text := range counters {
		count, _ := strconv.Atoi(text) // Redis counted
		t.Triggers += count
		if last[key] < count {
			t.Lost++
		}
	}
	return t
}
