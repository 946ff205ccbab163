package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The chart's measures, in px.
const (
	chartWidth  = 800
	chartLeft   = 140 // of the bars; left of it are the names
	chartRight  = 80  // right of the longest bar, for its figure
	chartTop    = 62
	groupHeight = 38 // of a title, with the space above it
	barHeight   = 15
	barStep     = 20
	noteStep    = 18
)

// Two figures are equal if the greater one is less than aboutEqual times the other one.
const aboutEqual = 1.15

// chartScenario has work under the lock, as programs have. Without work the figures show only what a
// hand-off costs.
const chartScenario = "multi-hold"

// chartPanels are the figures of the chart. Each panel has its own scale.
var chartPanels = []struct {
	figure, title, unit string
	text                func(float64) string
	up                  bool // more is better
}{
	{ops, "Operations a second: longer is better", "ops/s", number, true},
	{p99, "99 of 100 calls wait at most this long (p99): shorter is better", "", micros, false},
}

// chartLibraries are the bars of a panel. The chart has only the floor that does more operations.
var chartLibraries = []struct{ library, name, class string }{
	{holdfastName, "holdfast", "holdfast"},
	{"redsync", "redsync", "redsync"},
	{"redislock", "redislock", "redislock"},
	{"rueidislock", "rueidislock", "rueidislock"},
	{floorName, "SET NX", "floor"},
	{pipelinedName, "pipelined SET NX", "floor"},
}

// The colors of other libraries are pale, so that the color of holdfast stands out. Readers with
// the common kinds of color blindness can distinguish all of them. The chart has its own
// background, so that it is readable on a page that ignores the color scheme of the browser.
const chartStyle = `<style>
text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 18px; font-weight: 600 }
.bold { font-weight: 600 }
.small { font-size: 13px; fill: #59636e }
.ground { fill: #ffffff }
.line { stroke: #d1d9e0 }
.holdfast { fill: #d55e00 }
.redsync { fill: #7fb2d9 }
.redislock { fill: #8cc3a0 }
.rueidislock { fill: #b9a3d6 }
.floor { fill: #b3bac2 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  .ground { fill: #0d1117 }
  .line { stroke: #3d444d }
  .holdfast { fill: #ff8a3d }
  .redsync { fill: #3f7cab }
  .redislock { fill: #478a60 }
  .rueidislock { fill: #7d64a6 }
  .floor { fill: #6e7681 }
}
</style>
`

// bar is a library with its figures.
type bar struct {
	name, class string
	figures     figures
}

// chart draws the throughput and the waits of each library with work under the lock, or returns ""
// without figures. The scales are linear. The chart depends only on figures that are also in the
// tables.
func chart(rs results, conditions string) string {
	bars := chartBars(rs)
	if len(bars) == 0 {
		return ""
	}
	bottom := chartTop + len(chartPanels)*(groupHeight+barStep*len(bars))
	height := bottom + 20 + noteStep*2
	title := chartTitle(bars)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", chartWidth, height, title)
	fmt.Fprintf(&b, "<!-- Written by make bench, and by its test with -update from the figures of RESULTS.md. -->\n%s", chartStyle)
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d" rx="6"/>`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<text class="title" x="10" y="28">%s</text>`+"\n", title)
	b.WriteString(`<text class="small" x="10" y="50">64 goroutines in 8 processes want the same key, and work for 2 ms while they hold it.</text>` + "\n")
	y := chartTop
	for _, p := range chartPanels {
		slices.SortStableFunc(bars, func(a, b bar) int {
			if p.up {
				a, b = b, a
			}
			return cmp.Compare(a.figures[p.figure], b.figures[p.figure])
		})
		longest := 0.0
		for _, r := range bars {
			longest = max(longest, r.figures[p.figure])
		}
		scale := (chartWidth - chartLeft - chartRight) / max(longest, 1)
		y += groupHeight
		fmt.Fprintf(&b, `<text class="bold" x="10" y="%d">%s</text>`+"\n", y-9, p.title)
		for _, r := range bars {
			v := r.figures[p.figure]
			r.draw(&b, y, v*scale, p.text(v), p.unit)
			y += barStep
		}
	}
	for i, note := range []string{"SET NX: the least that a lock on Redis does, without a library. Settings, versions and more figures: bench/RESULTS.md", conditions} {
		fmt.Fprintf(&b, `<text class="small" x="10" y="%d">%s</text>`+"\n", bottom+28+noteStep*i, note)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (r bar) draw(b *strings.Builder, y int, length float64, figure, unit string) {
	bold := ""
	if r.class == "holdfast" {
		bold = ` class="bold"`
	}
	text := y + barHeight - 3
	fmt.Fprintf(b, `<text%s x="%d" y="%d" text-anchor="end">%s</text>`+"\n", bold, chartLeft-8, text, r.name)
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`+"\n",
		r.class, chartLeft, y, length, barHeight, strings.TrimSpace(r.name+": "+figure+" "+unit))
	fmt.Fprintf(b, `<text%s x="%.1f" y="%d">%s</text>`+"\n", bold, chartLeft+length+6, text, figure)
}

func chartBars(rs results) (bars []bar) {
	for _, l := range chartLibraries {
		r, ok := rs.get(chartScenario, "", l.library)
		if !ok {
			continue
		}
		next := bar{l.name, l.class, figures{ops: math.Round(r.figures[ops]), p99: r.figures[p99]}} // as the tables have it
		if last := len(bars) - 1; last >= 0 && bars[last].class == l.class {
			if next.figures[ops] > bars[last].figures[ops] {
				bars[last] = next
			}
			continue
		}
		bars = append(bars, next)
	}
	return bars
}

// chartTitle is the finding of the chart: how holdfast compares with the fastest other library, and
// with the one with the shortest waits.
func chartTitle(bars []bar) string {
	var mine figures
	most, least := 0.0, math.Inf(1)
	for _, b := range bars {
		switch b.class {
		case "holdfast":
			mine = b.figures
		case "floor":
		default:
			most, least = max(most, b.figures[ops]), min(least, b.figures[p99])
		}
	}
	if most == 0 || mine[ops] == 0 {
		return "Operations a second and waits by library"
	}
	throughput := "equal throughput"
	if ratio := mine[ops] / most; ratio > aboutEqual || ratio < 1/aboutEqual {
		throughput = brief(ratio) + " times the throughput"
	}
	return fmt.Sprintf("2 ms of work: %s, p99 of the waits %s against %s", throughput, micros(mine[p99]), micros(least))
}
