package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// A held key takes memory in Redis, and a key that was held and released leaves nothing.
func TestMemoryScenario(t *testing.T) {
	newServer(t)
	t.Parallel()
	var out strings.Builder
	if err := bench(t.Context(), []string{"-scenario", "memory", "-keys", "2000", "-only", "floor,holdfast", "-json"}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	for _, line := range lines {
		var f struct {
			Held     float64 `json:"redis_keys_held"`
			Left     float64 `json:"redis_keys_left"`
			PerKey   float64 `json:"redis_bytes_per_held_key"`
			Unserved int     `json:"unserved"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if f.Held != 2000 || f.Left != 0 || f.Unserved != 0 || f.PerKey < 50 || f.PerKey > 1000 {
			t.Errorf("implausible: %s", line)
		}
	}
}

// The scenario memory runs only if -scenario names it. -keys sets its number of keys.
func TestMemorySelected(t *testing.T) {
	o, err := parseOptions([]string{"-scenario", "memory", "-keys", "7"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(o.scenarios) != 1 || o.scenarios[0].points[0].Workers != 7 {
		t.Errorf("got %+v", o.scenarios)
	}
	s, _ := scenarioNamed("memory")
	if s.points[0].Workers != memoryKeys {
		t.Errorf("the flag changed the scenario: %+v", s)
	}
	if slices.Contains(namesOf(t), "memory") {
		t.Error("the scenario memory runs by default")
	}
	if _, err := parseOptions([]string{"-keys", "0"}, t.Output()); err == nil || !strings.Contains(err.Error(), "-keys is 0") {
		t.Errorf("got %v", err)
	}
}

// namesOf returns the names of the scenarios that run by default.
func namesOf(t *testing.T) []string {
	t.Helper()
	o, err := parseOptions(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range o.scenarios {
		names = append(names, s.name)
	}
	return names
}
