package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

const docs = "../../docs/observability/"

// ofMajority begins the name of the metric of several servers, and of its label. The program has one
// server, so it neither emits that metric nor causes its alert.
const ofMajority = "holdfast_server"

// After one fault of each kind, a scrape returns all metrics and labels that docs/operate.md
// names, in the form that the exporter gives them. This holds on a Redis inside the process and on
// a real one.
func TestRun(t *testing.T) {
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		demo := start(t, append(args, "-pause", "1ms")...)
		demo.tour(t)
		checkScrape(t, get(t, demo.url+"/metrics"))
		spans := get(t, demo.url+"/debug/spans")
		if !regexp.MustCompile(`<td><a href="#([0-9a-f]{16})">[0-9a-f]{16}</a> <td>acquire`).MatchString(spans) {
			t.Errorf("the list has no call that waited:\n%s", spans)
		}
		demo.stop()
	})
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, res.Status, err)
	}
	return string(b)
}

// checkScrape compares a scrape with the table of metrics on the page, and with all metrics that
// the dashboard and the alerts name.
func checkScrape(t *testing.T, scrape string) {
	t.Helper()
	scraped := map[string]string{} // name to type and labels
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (holdfast_\S+) (\S+)$`).FindAllStringSubmatch(scrape, -1) {
		var labels []string
		for _, s := range regexp.MustCompile(`(?m)^`+m[1]+`(?:_bucket|_sum|_count)?\{(.*)\} `).FindAllStringSubmatch(scrape, -1) {
			for _, l := range regexp.MustCompile(`holdfast_(\w+)="`).FindAllStringSubmatch(s[1], -1) {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		scraped[m[1]] = m[2] + " " + strings.Join(slices.Compact(labels), ", ")
	}
	types := map[string]string{"counter": "counter", "histogram": "histogram", "up-down counter": "gauge", "gauge": "gauge"}
	row := regexp.MustCompile("(?m)^\\| `holdfast\\.[a-z_.]+` \\| `(holdfast_[a-z_]+)` \\| ([a-z -]+) \\| ([a-z, ]*?) ?\\| ")
	rows := slices.DeleteFunc(row.FindAllStringSubmatch(read(t, "../../docs/operate.md"), -1), func(r []string) bool {
		return strings.HasPrefix(r[1], ofMajority)
	})
	for _, r := range rows {
		labels := strings.FieldsFunc(r[3], func(c rune) bool { return c == ',' || c == ' ' })
		slices.Sort(labels)
		if want := types[r[2]] + " " + strings.Join(labels, ", "); scraped[r[1]] != want {
			t.Errorf("%s is scraped as %q, the page says %q", r[1], scraped[r[1]], want)
		}
	}
	if len(rows) < 15 || len(rows) != len(scraped) {
		t.Errorf("%d metrics are on the page, %d were scraped: %v", len(rows), len(scraped), scraped)
	}
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		for _, name := range regexp.MustCompile(`\bholdfast_\w+`).FindAllString(read(t, docs+file), -1) {
			if !strings.HasPrefix(name, ofMajority) && !regexp.MustCompile(`(?m)(^|[{,])`+name+`[={]`).MatchString(scrape) {
				t.Errorf("%s queries %s, which was not scraped", file, name)
			}
		}
	}
}

// The program causes every alert of docs/observability for an event, and no other.
func TestEveryAlertHasItsTrouble(t *testing.T) {
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(read(t, docs+"alerts.yaml"), -1)
	var have, made []string
	for _, a := range alerts {
		if a[1] != "HoldfastWaitsLong" && a[1] != "HoldfastServerFailed" { // the normal work causes the first one, see ofMajority for the other
			have = append(have, a[1])
		}
	}
	for _, tr := range troubles {
		if tr.alert != "" {
			made = append(made, strings.Split(tr.alert, ", ")...)
		}
	}
	slices.Sort(have)
	slices.Sort(made)
	if made = slices.Compact(made); !slices.Equal(have, made) {
		t.Errorf("alerts are %q, faults cause %q", have, made)
	}
}

func TestBadAddress(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	stagetest.WantError(t, program(), "99999", "-addr", "127.0.0.1:99999")
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
