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

// Each bar has its library and its throughput, and the fastest bar of a scenario is the first. Of the
// two floors the chart has the faster one.
func TestChart(t *testing.T) {
	rs := append(cells(), cellOf("multi-hold", "rueidislock", 10), cellOf("seq", pipelinedName, 11_000))
	svg := chart(rs, "a machine, median of 3 rounds")
	checkXML(t, svg)
	at := -1
	for _, want := range []string{
		">One busy key: holdfast is about 15 times as fast as the next lock library<",
		">One key, 64 goroutines of one process<", ">about 15 times the next library<",
		">holdfast<", ">19,000<", ">redsync<", ">1,000<", ">redislock<", ">500<",
		">One goroutine alone<", ">1.1 times the next library; pipelined SET NX is faster<",
		">pipelined SET NX<", ">11,000<", ">holdfast<", ">9,500<", ">redsync<", ">8,000<",
		"a machine, median of 3 rounds",
	} {
		next := strings.Index(svg[at+1:], want)
		if next < 0 {
			t.Fatalf("%s is missing or in the wrong order in\n%s", want, svg)
		}
		at += 1 + next
	}
	for _, not := range []string{"rueidislock", "SET NX<", "4 processes"} {
		if strings.Contains(svg, ">"+not) {
			t.Errorf("%s is in the chart", not)
		}
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
		var rs results
		for library, speed := range map[string]float64{holdfastName: c.mine, "redsync": c.its, floorName: c.floor} {
			rs = append(rs, result{scenario: "hot", library: library, figures: figures{ops: speed}})
		}
		groups := barGroups(rs)
		if got := groups[0].lead(); got != c.lead {
			t.Errorf("%v: got %q, want %q", c, got, c.lead)
		}
		if got := chartTitle(groups); got != c.title {
			t.Errorf("%v: got %q, want %q", c, got, c.title)
		}
		checkXML(t, chart(rs, ""))
	}
	if got := chart(nil, ""); got != "" {
		t.Errorf("without figures: %q", got)
	}
}

// chart.svg has the figures of RESULTS.md. With -update the test draws it again.
func TestChartOfResults(t *testing.T) {
	md := readFile(t, "RESULTS.md")
	said := regexp.MustCompile(`(go[0-9].*?), load averages .* the median of ([0-9]+ rounds)`).FindStringSubmatch(md)
	if said == nil {
		t.Fatal("RESULTS.md lacks the conditions of the measurement")
	}
	rs := readResults(t, md)
	svg := chart(rs, said[1]+", median of "+said[2])
	if *update {
		if err := os.WriteFile("chart.svg", []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if readFile(t, "chart.svg") != svg {
		t.Errorf("chart.svg has other figures than RESULTS.md: go -C bench test -run TestChartOfResults . -args -update draws it again\n%s", svg)
	}
	if n := len(barGroups(rs)); n != len(chartScenarios) {
		t.Errorf("%d scenarios, want %d", n, len(chartScenarios))
	}
}

// readResults reads the throughputs from the rows of RESULTS.md.
func readResults(t *testing.T, md string) (rs results) {
	t.Helper()
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z-]+) +\| ([a-z-]+) +\| ([0-9,]+) +\|`).FindAllStringSubmatch(md, -1) {
		speed, err := strconv.ParseFloat(strings.ReplaceAll(row[3], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := scenarioNamed(row[1]); ok {
			rs = append(rs, result{scenario: row[1], library: row[2], figures: figures{ops: speed}})
		}
	}
	return rs
}
