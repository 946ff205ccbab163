package main

import (
	"strings"
	"testing"
)

// About 5 % of the operations use the shared key. The other operations of a worker use its own key.
func TestSharedKey(t *testing.T) {
	s, _ := scenarioNamed("par-5%")
	p := s.points[0]
	const draws = 20_000
	shared := 0
	for i := range p.Workers {
		for range draws / p.Workers {
			switch key := p.keyOf(i); key {
			case p.Keys - 1:
				shared++
			case i:
			default:
				t.Fatalf("worker %d uses key %d", i, key)
			}
		}
	}
	if share := float64(shared) / draws; share < 0.04 || share > 0.06 {
		t.Errorf("%.3f of the operations use the shared key", share)
	}
	par, _ := scenarioNamed("par")
	for i := range 64 {
		if key := par.points[0].keyOf(i); key != i {
			t.Errorf("par: worker %d uses key %d", i, key)
		}
	}
}

// The table has the ratio of the throughput to that of the same library in par. The mark uses the
// ratio of holdfast.
func TestBeside(t *testing.T) {
	rs := results{
		{Scenario: "par", Library: "redsync", OpsPerS: 100},
		{Scenario: "par", Library: holdfastName, OpsPerS: 200},
		{Scenario: "par-5%", Library: "redsync", OpsPerS: 50},
		{Scenario: "par-5%", Library: holdfastName, OpsPerS: 160},
		{Scenario: "par-5%", Library: "redislock", OpsPerS: 50},
	}
	s, _ := scenarioNamed("par-5%")
	sh := sheetOf(s, rs)
	column := -1
	for i, head := range sh.head {
		if head == "÷ its par" {
			column = i
		}
	}
	if column < 0 {
		t.Fatalf("no column in %v", sh.head)
	}
	for i, want := range []string{"0.50", "0.80", "–"} {
		if got := sh.rows[i][column]; got != want {
			t.Errorf("row %d: got %s, want %s", i, got, want)
		}
	}
	for _, v := range judge(rs) {
		if strings.HasPrefix(v.mark.text, "no cliff") && (v.value != exactly(0.8) || v.String() != "met") {
			t.Errorf("the mark: %v %v", v.value, v)
		}
	}
}
