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
	chartWidth  = 880
	chartLeft   = 150 // of the bars; left of it are the names
	chartRight  = 190 // right of the longest possible bar, for its label
	chartTop    = 82
	groupHeight = 42 // of a scenario's title, with the space above it
	barHeight   = 14
	barStep     = 19
)

// chartScenarios are those whose answer is the throughput of each library at a single point.
var chartScenarios = []string{"seq", "par", "hot", "hot1k", "multi"}

// The colors of each kind are told apart with the common kinds of color blindness, on light and on dark ground.
const chartStyle = `<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.bold { font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.line { stroke: #d1d9e0 }
.mine { fill: #d55e00 }
.peer { fill: #4a90c4 }
.base { fill: #a3abb3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  .line { stroke: #3d444d }
  .mine { fill: #ff8a3d }
  .peer { fill: #6cb6ff }
  .base { fill: #6e7681 }
}
</style>
`

// chart draws the operations per second of every library, a group of bars for each scenario, on a logarithmic scale.
func chart(rs results) string {
	groups := chartGroups(rs)
	low, high := decades(slices.Concat(groups...))
	height := chartTop
	for _, g := range groups {
		height += groupHeight + barStep*len(g)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Lock and unlock operations per second by scenario and library">`+"\n", chartWidth, height+24)
	b.WriteString(chartStyle)
	b.WriteString(`<text class="title" x="10" y="24">Lock and unlock, operations per second</text>` + "\n")
	b.WriteString(`<text class="small" x="10" y="42">Longer is better. The scale is logarithmic: each vertical line is 10 times the one before.</text>` + "\n")
	drawLegend(&b)
	for d := low; d <= high; d++ {
		x := chartX(math.Pow10(d), low, high)
		fmt.Fprintf(&b, `<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, chartTop, x, height+4)
		fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, height+18, whole(math.Pow10(d)))
	}
	y := chartTop
	for _, g := range groups {
		s, _ := scenarioNamed(g[0].Scenario)
		y += groupHeight
		fmt.Fprintf(&b, `<text class="bold" x="10" y="%d">%s: %s</text>`+"\n", y-10, s.name, s.title)
		for _, r := range g {
			drawBar(&b, r, rs, y, low, high)
			y += barStep
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// chartGroups are the cells of each scenario, the fastest first.
func chartGroups(rs results) [][]result {
	var groups [][]result
	for _, name := range chartScenarios {
		var g []result
		for _, r := range rs {
			if l, _ := libraryNamed(r.Library); r.Scenario == name && !l.limit {
				g = append(g, r)
			}
		}
		if len(g) > 0 {
			slices.SortStableFunc(g, func(a, b result) int { return cmp.Compare(b.OpsPerS, a.OpsPerS) })
			groups = append(groups, g)
		}
	}
	return groups
}

// decades are the powers of ten around all speeds. A bar of no operations has no length.
func decades(rs results) (low, high int) {
	low, high = 2, 3
	for _, r := range rs {
		if r.OpsPerS > 0 {
			low = min(low, int(math.Floor(math.Log10(r.OpsPerS))))
			high = max(high, int(math.Ceil(math.Log10(r.OpsPerS))))
		}
	}
	return low, high
}

func chartX(v float64, low, high int) float64 {
	at := (math.Log10(max(v, math.Pow10(low))) - float64(low)) / float64(high-low)
	return chartLeft + at*(chartWidth-chartLeft-chartRight)
}

func drawBar(b *strings.Builder, r result, rs results, y, low, high int) {
	end := chartX(r.OpsPerS, low, high)
	name := ""
	if r.Library == holdfastName {
		name = ` class="bold"`
	}
	fmt.Fprintf(b, `<text%s x="%d" y="%d" text-anchor="end">%s</text>`+"\n", name, chartLeft-8, y+barHeight-3, r.Library)
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"><title>%s, %s: %s ops/s</title></rect>`+"\n",
		barClass(r.Library), chartLeft, y, end-chartLeft, barHeight, r.Scenario, r.Library, number(r.OpsPerS))
	fmt.Fprintf(b, `<text%s x="%.1f" y="%d">%s/s<tspan class="small" dx="8">%s</tspan></text>`+"\n",
		name, end+6, y+barHeight-3, whole(r.OpsPerS), timesHoldfast(rs, r))
}

func barClass(library string) string {
	switch l, _ := libraryNamed(library); {
	case library == holdfastName:
		return "mine"
	case l.peer:
		return "peer"
	default:
		return "base"
	}
}

// timesHoldfast is the throughput of r as a multiple of holdfast's, or as a fraction if it is far below. It is the inverse
// of the table's ratio.
func timesHoldfast(rs results, r result) string {
	over, ok := rs.over(r, opsOf)
	switch {
	case !ok || r.OpsPerS == 0:
		return ""
	case over.Median > 10:
		return "1/" + whole(over.Median) + " × holdfast"
	default:
		return number(1/over.Median) + " × holdfast"
	}
}

// whole is v without digits after the point, and with commas.
func whole(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return number(v)
}

func drawLegend(b *strings.Builder) {
	x := 10
	for _, kind := range []struct{ class, text string }{
		{"mine", "holdfast"},
		{"peer", "other libraries"},
		{"base", "floor: the least that a lock on Redis does, no library"},
	} {
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="54" width="12" height="12" rx="2"/>`+"\n", kind.class, x)
		fmt.Fprintf(b, `<text x="%d" y="64">%s</text>`+"\n", x+18, kind.text)
		x += 48 + 6*len(kind.text)
	}
}
