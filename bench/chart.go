package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The chart's measures, in px.
const (
	chartWidth = 880
	chartLeft  = 110
	chartRight = 40
	chartTop   = 84
	rowHeight  = 50
	laneHeight = 4 // each library has a height of its own in a row, so that equal ones do not hide each other
)

// chartColors are told apart with the common kinds of color blindness (Okabe and Ito) and on light and dark ground;
// holdfast also has another shape.
var chartColors = map[string]string{
	floorName: "#999999", pipelinedName: "#56b4e9", "redsync": "#e69f00", "redislock": "#cc79a7", "rueidislock": "#009e73",
	patientName: "#9467bd", holdfastName: "#d55e00",
}

const chartStyle = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.line { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  .line { stroke: #3d444d }
}
</style>
`

// chart draws operations per second of every library in the scenarios that compare libraries, on a logarithmic scale.
func chart(rs results) string {
	var rows []scenario
	var shown results
	for _, s := range scenarios {
		n := len(shown)
		for _, r := range rs {
			if l, _ := libraryNamed(r.Library); r.Scenario == s.name && s.libraries == nil && s.points[0].Kind == lockKind && !l.limit {
				shown = append(shown, r)
			}
		}
		if len(shown) > n {
			rows = append(rows, s)
		}
	}
	low, high := decades(shown)
	height := chartTop + rowHeight*len(rows) + 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Lock and unlock operations per second by scenario and library">`+"\n", chartWidth, height)
	b.WriteString(chartStyle)
	b.WriteString(`<text x="10" y="22">Lock and unlock, operations per second (logarithmic, further right is better)</text>` + "\n")
	drawLegend(&b, shown)
	for d := low; d <= high; d++ {
		x := chartX(math.Pow10(d), low, high)
		fmt.Fprintf(&b, `<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, chartTop-8, x, height-24)
		fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, height-8, strings.TrimSuffix(number(math.Pow10(d)), ".0"))
	}
	for i, s := range rows {
		y := chartTop + rowHeight*i + rowHeight/2
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text>`+"\n", y+4, s.name)
		fmt.Fprintf(&b, `<line class="line" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", chartLeft, y, chartWidth-chartRight, y)
		for _, r := range shown {
			if r.Scenario == s.name {
				title := fmt.Sprintf("<title>%s, %s: %s ops/s</title>", r.Scenario, r.Library, number(r.OpsPerS))
				lane := slices.Index(libraryNames(), r.Library) - len(libraries)/2
				drawPoint(&b, r.Library, chartX(r.OpsPerS, low, high), y+laneHeight*lane, title)
			}
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// decades are the powers of ten around all speeds. What did nothing at all stands at the left.
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

func drawPoint(b *strings.Builder, library string, x float64, y int, title string) {
	if library == holdfastName {
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="12" height="12" transform="rotate(45 %.1f %d)" fill="%s">%s</rect>`+"\n",
			x-6, y-6, x, y, chartColors[library], title)
		return
	}
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%d" r="6" fill="%s">%s</circle>`+"\n", x, y, chartColors[library], title)
}

func drawLegend(b *strings.Builder, shown results) {
	x := 16
	for _, name := range libraryNames() {
		if !slices.ContainsFunc(shown, func(r result) bool { return r.Library == name }) {
			continue
		}
		drawPoint(b, name, float64(x), 46, "")
		fmt.Fprintf(b, `<text x="%d" y="50">%s</text>`+"\n", x+12, name)
		x += 34 + 8*len(name)
	}
}
