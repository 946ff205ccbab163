package main

import (
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write chart.svg anew")

// A panel has a bar for each library, the best one first. Of the two floors the chart has the one
// that does more operations.
func TestChart(t *testing.T) {
	rs := append(cells(), cellOf(chartScenario, "redsync", 430), cellOf(chartScenario, "redislock", 440), cellOf(chartScenario, holdfastName, 420),
		cellOf(chartScenario, floorName, 400), cellOf(chartScenario, pipelinedName, 410))
	for i := range rs {
		if rs[i].library == holdfastName {
			rs[i].figures[p99] = 100_000 // µs
		} else {
			rs[i].figures[p99] = 1e8 / rs[i].figures[ops]
		}
	}
	svg := chart(rs, "a machine, median of 3 rounds")
	checkXML(t, svg)
	at := -1
	for _, want := range []string{
		">2 ms of work: equal throughput, p99 of the waits 100ms against 227ms<",
		">Operations a second: longer is better<", ">redislock<", ">440<", ">redsync<", ">430<", ">holdfast<", ">420<", ">pipelined SET NX<", ">410<",
		"(p99): shorter is better<", ">holdfast<", ">100ms<", ">redislock<", ">227ms<", ">redsync<", ">233ms<", ">pipelined SET NX<", ">244ms<",
		"a machine, median of 3 rounds",
	} {
		next := strings.Index(svg[at+1:], want)
		if next < 0 {
			t.Fatalf("%s is missing or in the wrong order in\n%s", want, svg)
		}
		at += 1 + next
	}
	for _, not := range []string{"rueidislock", "SET NX<", "19,000"} {
		if strings.Contains(svg, ">"+not) {
			t.Errorf("%s is in the chart", not)
		}
	}
	if s, ok := scenarioNamed(chartScenario); !ok || len(s.points) != 1 {
		t.Errorf("%s is no scenario of one point", chartScenario)
	}
	for _, l := range chartLibraries {
		if _, ok := libraryNamed(l.library); !ok {
			t.Errorf("%s is no library", l.library)
		}
	}
}

// The title also reports where holdfast is behind, and claims nothing that was not measured.
func TestChartFindings(t *testing.T) {
	const noFinding = "Operations a second and waits by library"
	for _, c := range []struct {
		mine, its         float64 // operations a second
		myWaits, itsWaits float64 // µs
		title             string
	}{
		{431, 434, 166_000, 609_000, "2 ms of work: equal throughput, p99 of the waits 166ms against 609ms"},
		{300, 434, 166_000, 170_000, "2 ms of work: 0.69 times the throughput, p99 of the waits 166ms against 170ms"},
		{868, 434, 340_000, 170_000, "2 ms of work: 2.00 times the throughput, p99 of the waits 340ms against 170ms"},
		{500, 0, 100, 100, noFinding},
		{0, 500, 0, 100, noFinding},
	} {
		rs := results{
			{scenario: chartScenario, library: holdfastName, figures: figures{ops: c.mine, p99: c.myWaits}},
			{scenario: chartScenario, library: "redsync", figures: figures{ops: c.its, p99: c.itsWaits}},
		}
		if got := chartTitle(chartBars(rs)); got != c.title {
			t.Errorf("%v: got %q, want %q", c, got, c.title)
		}
		checkXML(t, chart(rs, ""))
	}
	if got := chart(cells(), ""); got != "" {
		t.Errorf("without figures of the scenario: %q", got)
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
	if n := len(chartBars(rs)); n != len(chartLibraries)-1 {
		t.Errorf("%d libraries, want %d", n, len(chartLibraries)-1)
	}
}

// readResults reads throughput and p99 from the rows of RESULTS.md.
func readResults(t *testing.T, md string) (rs results) {
	t.Helper()
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z-]+) +\| ([a-z-]+) +\| ([0-9,]+) +\|[^|]*\|[^|]*\| ([0-9.]+[µm]?s) +\|`).FindAllStringSubmatch(md, -1) {
		speed, err := strconv.ParseFloat(strings.ReplaceAll(row[3], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		wait, err := time.ParseDuration(row[4])
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := scenarioNamed(row[1]); ok {
			rs = append(rs, result{scenario: row[1], library: row[2], figures: figures{ops: speed, p99: us(wait)}})
		}
	}
	return rs
}
