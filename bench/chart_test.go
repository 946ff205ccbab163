package main

import (
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write chart.svg anew")

func TestChartIsWellFormed(t *testing.T) {
	for _, rs := range []results{nil, cells(), {{Scenario: "seq", Library: holdfastName}}, {{Scenario: "hot", Library: "redsync", OpsPerS: 1}}} {
		svg := chart(rs, measured{})
		checkXML(t, svg)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, "∞") {
			t.Errorf("not a number in\n%s", svg)
		}
	}
}

// Each bar has its library and its throughput, and the fastest bar of a scenario is the first. For
// two variants of a library the chart has the faster one. It has no bar for a limit, because a
// limit is not a lock library.
func TestChart(t *testing.T) {
	rs := append(cells(),
		result{Scenario: "multi-hold", Library: "rueidislock", OpsPerS: 10},
		result{Scenario: "hot", Library: modelName, OpsPerS: 1e6},
		result{Scenario: "hot", Library: patientName, OpsPerS: 600.4})
	svg := chart(rs, measured{machine: "a machine", rounds: 3, versions: map[string]string{"redsync": "v1.2.3"}})
	at := -1
	for _, want := range []string{
		">One busy key: holdfast is about 15 times as fast as the next lock library<",
		">One key, 64 goroutines of one process<", ">about 15 times the next library<",
		">holdfast<", ">19,000<", ">redsync<", ">1,000<", ">redislock<", ">600<",
		">One goroutine alone<", ">1.1 times the next library; SET NX is faster<",
		">SET NX<", ">10,000<", ">holdfast<", ">9,500<", ">redsync<", ">8,000<",
		"redsync v1.2.3; ", "a machine, median of 3 rounds",
	} {
		next := strings.Index(svg[at+1:], want)
		if next < 0 {
			t.Fatalf("%s is missing or in the wrong order in\n%s", want, svg)
		}
		at += 1 + next
	}
	for _, not := range []string{"rueidislock", modelName, "500<", "4 processes"} {
		if strings.Contains(svg, ">"+not) {
			t.Errorf("%s is in the chart", not)
		}
	}
	if !strings.Contains(svg, "prefers-color-scheme: dark") {
		t.Error("the chart has no colors for a dark background")
	}
	for _, c := range chartScenarios {
		if s, ok := scenarioNamed(c.name); !ok || len(s.points) != 1 {
			t.Errorf("%s is no scenario of one point", c.name)
		}
	}
	for _, l := range chartLibraries {
		if _, ok := libraryNamed(l.library); !ok {
			t.Errorf("%s is no library", l.library)
		}
	}
}

// The chart also reports where holdfast is not ahead, and claims nothing that was not measured.
func TestChartFindings(t *testing.T) {
	const noFinding = "Operations a second by scenario and library"
	for _, c := range []struct {
		mine, its, floor float64
		lead, title      string
	}{
		{580, 10, 0, "about 55 times the next library", "One busy key: holdfast is about 55 times as fast as the next lock library"},
		{1_370, 10, 0, "about 100 times the next library", "One busy key: holdfast is about 100 times as fast as the next lock library"},
		{1_690, 1_000, 1_700, "1.6 times the next library", noFinding},
		{1_100, 1_000, 2_000, "about equal; SET NX is faster", noFinding},
		{900, 1_000, 0, "about equal", noFinding},
		{500, 1_000, 0, "holdfast is behind", noFinding},
		{500, 0, 0, "", noFinding},
	} {
		groups := barGroups(results{
			{Scenario: "hot", Library: holdfastName, OpsPerS: c.mine}, {Scenario: "hot", Library: "redsync", OpsPerS: c.its}, {Scenario: "hot", Library: floorName, OpsPerS: c.floor},
		})
		if got := groups[0].lead(); got != c.lead {
			t.Errorf("%v: got %q, want %q", c, got, c.lead)
		}
		if got := chartTitle(groups); got != c.title {
			t.Errorf("%v: got %q, want %q", c, got, c.title)
		}
	}
	if got := chartTitle(nil); got != noFinding {
		t.Errorf("without figures: %q", got)
	}
}

// chart.svg has the figures of RESULTS.md. With -update the test draws it again.
func TestChartOfResults(t *testing.T) {
	svg := chart(readResults(t))
	if *update {
		if err := os.WriteFile("chart.svg", []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("chart.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != svg {
		t.Errorf("chart.svg has other figures than RESULTS.md: go -C bench test -run TestChartOfResults . -args -update draws it again\n%s", svg)
	}
	if n := len(barGroups(readCells(t))); n != len(chartScenarios) {
		t.Errorf("%d scenarios, want %d", n, len(chartScenarios))
	}
}

func readResults(t *testing.T) (results, measured) {
	t.Helper()
	preface, _, _ := strings.Cut(readFile(t, "RESULTS.md"), "\n## ")
	said := regexp.MustCompile("(go[0-9][^`]*?)(?:, load averages .*?)?\\. Each run measured .* the median of ([0-9]+) rounds?,").FindStringSubmatch(preface)
	if said == nil {
		t.Fatalf("RESULTS.md lacks the conditions of the measurement:\n%s", preface)
	}
	rounds, err := strconv.Atoi(said[2])
	if err != nil {
		t.Fatal(err)
	}
	m := measured{machine: said[1], rounds: rounds, versions: map[string]string{}}
	for line := range strings.Lines(preface) {
		if f := strings.Split(line, " | "); len(f) > 2 {
			_, version, _ := strings.Cut(f[1], " v")
			m.versions[strings.TrimPrefix(f[0], "| ")] = "v" + version
		}
	}
	return readCells(t), m
}

// readCells reads the throughputs of the scenarios from RESULTS.md.
func readCells(t *testing.T) results {
	t.Helper()
	var rs results
	for section := range strings.SplitSeq(readFile(t, "RESULTS.md"), "\n## ") {
		name, text, _ := strings.Cut(section, ": ")
		_, text, ok := strings.Cut(text, "\n| library | ops/s |")
		if !ok {
			continue
		}
		for line := range strings.Lines(text) {
			f := strings.Split(line, " | ")
			if len(f) < 3 || !strings.HasPrefix(f[0], "| ") {
				continue
			}
			ops, err := strconv.ParseFloat(strings.ReplaceAll(f[1], ",", ""), 64)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, line)
			}
			rs = append(rs, result{Scenario: name, Library: strings.TrimPrefix(f[0], "| "), OpsPerS: ops})
		}
	}
	return rs
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
