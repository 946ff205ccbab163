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
	groupHeight = 38 // of a scenario's title, with the space above it
	barHeight   = 15
	barStep     = 20
	noteStep    = 18
)

// A throughput that is less than aboutEqual times another one is equal to it. One that is more than
// ahead times another one is faster, beyond noise.
const (
	aboutEqual = 1.15
	ahead      = 1.05
)

// chartScenarios are the scenarios of the chart, with their titles. Each has a single point.
var chartScenarios = []struct{ name, title string }{
	{"hot", "One key, 64 goroutines of one process"},
	{"multi", "One key, 4 processes of 16 goroutines"},
	{"par", "64 goroutines, a key each"},
	{"seq", "One goroutine alone"},
}

// chartLibraries are the bars of a scenario. The chart has only the faster one of the two floors.
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
.finding { fill: #b34700 }
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
  .finding { fill: #ff8a3d }
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

// bar is the throughput of a library in a scenario.
type bar struct {
	name, class string
	ops         float64
}

// barGroup is a scenario with its bars, the fastest first.
type barGroup struct {
	scenario, title string
	bars            []bar
}

// chart draws the operations per second of each library, a group of bars for each scenario, or
// returns "" without figures. The scale is linear. The chart depends only on figures that are also in
// the tables.
func chart(rs results, conditions string) string {
	groups := barGroups(rs)
	if len(groups) == 0 {
		return ""
	}
	bottom, longest := chartTop, 10.0
	for _, g := range groups {
		bottom += groupHeight + barStep*len(g.bars)
		longest = max(longest, g.bars[0].ops)
	}
	scale := (chartWidth - chartLeft - chartRight) / longest
	var b strings.Builder
	height := bottom + 36 + noteStep*2
	title := chartTitle(groups)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", chartWidth, height, title)
	fmt.Fprintf(&b, "<!-- Written by make bench, and by its test with -update from the figures of RESULTS.md. -->\n%s", chartStyle)
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d" rx="6"/>`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<text class="title" x="10" y="28">%s</text>`+"\n", title)
	b.WriteString(`<text class="small" x="10" y="50">Lock and unlock with nothing in between, operations a second: longer is faster.</text>` + "\n")
	var ticks []float64
	for v := 0.0; v <= longest; v += tick(longest) {
		ticks = append(ticks, v)
		fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", chartLeft+v*scale, bottom+16, number(v))
	}
	y := chartTop
	for _, g := range groups {
		y += groupHeight
		for _, v := range ticks {
			x := chartLeft + v*scale
			fmt.Fprintf(&b, `<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, y-3, x, y+barStep*len(g.bars)-2)
		}
		fmt.Fprintf(&b, `<text class="bold" x="10" y="%d">%s<tspan class="finding" dx="10">%s</tspan></text>`+"\n", y-9, g.title, g.lead())
		for _, r := range g.bars {
			drawBar(&b, g, r, y, scale)
			y += barStep
		}
	}
	for i, note := range []string{"SET NX: the least that a lock on Redis does, without a library. Settings, versions and more figures: bench/RESULTS.md", conditions} {
		fmt.Fprintf(&b, `<text class="small" x="10" y="%d">%s</text>`+"\n", bottom+44+noteStep*i, note)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawBar(b *strings.Builder, g barGroup, r bar, y int, scale float64) {
	bold := ""
	if r.class == "holdfast" {
		bold = ` class="bold"`
	}
	text := y + barHeight - 3
	fmt.Fprintf(b, `<text%s x="%d" y="%d" text-anchor="end">%s</text>`+"\n", bold, chartLeft-8, text, r.name)
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"><title>%s, %s: %s ops/s</title></rect>`+"\n",
		r.class, chartLeft, y, r.ops*scale, barHeight, g.scenario, r.name, number(r.ops))
	fmt.Fprintf(b, `<text%s x="%.1f" y="%d">%s</text>`+"\n", bold, chartLeft+r.ops*scale+6, text, number(r.ops))
}

func barGroups(rs results) (groups []barGroup) {
	for _, s := range chartScenarios {
		g := barGroup{scenario: s.name, title: s.title}
		for _, l := range chartLibraries {
			r, ok := rs.get(s.name, "", l.library)
			if !ok {
				continue
			}
			next := bar{l.name, l.class, math.Round(r.figures[ops])} // as the tables have it
			if last := len(g.bars) - 1; last >= 0 && g.bars[last].class == l.class {
				if next.ops > g.bars[last].ops {
					g.bars[last] = next
				}
				continue
			}
			g.bars = append(g.bars, next)
		}
		if len(g.bars) > 0 {
			slices.SortStableFunc(g.bars, func(a, b bar) int { return cmp.Compare(b.ops, a.ops) })
			groups = append(groups, g)
		}
	}
	return groups
}

// chartTitle is the finding of the chart: by how much holdfast is ahead on a contended key.
func chartTitle(groups []barGroup) string {
	least := math.Inf(1)
	for _, g := range groups {
		if over := g.overNext(); over > 0 && (g.scenario == "hot" || g.scenario == "multi") {
			least = min(least, over)
		}
	}
	if math.IsInf(least, 1) || least < 2 {
		return "Operations a second by scenario and library"
	}
	return fmt.Sprintf("One busy key: holdfast is %s as fast as the next lock library", times(least))
}

// lead describes how far holdfast is ahead of the next library, and whether the floor is faster.
func (g barGroup) lead() string {
	over := g.overNext()
	var s string
	switch {
	case over == 0:
		return ""
	case over >= aboutEqual:
		s = times(over) + " the next library"
	case over > 1/aboutEqual:
		s = "about equal"
	default:
		s = "holdfast is behind"
	}
	if floor := g.of("floor"); floor.ops > ahead*g.of("holdfast").ops {
		s += "; " + floor.name + " is faster"
	}
	return s
}

// overNext is the throughput of holdfast as a multiple of that of the fastest other library. It is
// 0 if one of them is missing or did nothing.
func (g barGroup) overNext() float64 {
	for _, b := range g.bars {
		if b.class != "holdfast" && b.class != "floor" && b.ops > 0 {
			return g.of("holdfast").ops / b.ops
		}
	}
	return 0
}

// of returns the bar of a class, or the zero bar.
func (g barGroup) of(class string) bar {
	i := slices.IndexFunc(g.bars, func(b bar) bool { return b.class == class })
	if i < 0 {
		return bar{}
	}
	return g.bars[i]
}

// times formats a ratio. It rounds a ratio of 10 or more down to half a unit of its first digit,
// because such a ratio differs from round to round.
func times(ratio float64) string {
	if ratio >= 10 {
		half := math.Pow10(int(math.Log10(ratio))) / 2
		return "about " + number(math.Floor(ratio/half)*half) + " times"
	}
	return fmt.Sprintf("%.1f times", math.Floor(ratio*10)/10)
}

// tick returns the distance between two lines of the scale: 1, 2 or 5 times a power of ten. The
// scale has at most 6 lines.
func tick(longest float64) float64 {
	unit := math.Pow10(int(math.Floor(math.Log10(longest))))
	for _, step := range []float64{0.2, 0.5, 1} {
		if longest/(step*unit) <= 6 {
			return step * unit
		}
	}
	return 2 * unit
}
