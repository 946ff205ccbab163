// Package docs_test checks the pages of this directory. Their code is compiled and run, their links
// have a target, and their statements about behavior have tests.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every Go block of a page is in a file that is compiled and tested, apart from white space.
func TestCode(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "../*_test.go", "../lockcore/example*_test.go", "../middleware/*/*_test.go", "../tracing/example*_test.go", "../postgres/example_test.go", "../proof/sqltest/*_test.go", "../examples/frameworks/*/*.go", "../examples/start/*/*.go", "observability/*_test.go", "../examples/observability/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			code.WriteString(squeeze(read(t, f)))
		}
	}
	blocks := 0
	for name, text := range pages(t, "*.md") {
		for _, b := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			blocks++
			if !strings.Contains(code.String(), squeeze(b[1])) {
				t.Errorf("%s: this block is in no tested file:\n%s", name, b[1])
			}
		}
	}
	if blocks < 5 {
		t.Errorf("only %d Go blocks found", blocks)
	}
}

// Every link inside the repository has a file or a folder as its target, and a heading of the file if
// the link names one.
func TestLinks(t *testing.T) {
	links := 0
	code := regexp.MustCompile("(?s)```.*?```")
	for name, text := range pages(t, "*.md", "../*.md", "../bench/*.md") {
		text = code.ReplaceAllString(text, "")
		for _, l := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target, heading, _ := strings.Cut(l[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			target = filepath.Join(filepath.Dir(name), target)
			if l[1][0] == '#' {
				target = name
			}
			if info, err := os.Stat(target); err == nil && info.IsDir() && heading == "" {
				continue
			}
			b, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: %s leads nowhere", name, l[1])
			} else if heading != "" && !strings.Contains(anchors(string(b)), " "+heading+" ") {
				t.Errorf("%s: %s has no such heading", name, l[1])
			}
		}
	}
	if links == 0 {
		t.Error("no links found")
	}
}

// Links to pages that the code prints, and those in the alerts, the dashboard and the API fragment,
// have a page and a heading as their target.
func TestLinksInCode(t *testing.T) {
	link := regexp.MustCompile(`github\.com/holdfast-go/holdfast/blob/main/([\w./-]+\.md)(?:#([\w-]*))?`)
	links := 0
	for _, pattern := range []string{"../*/*.go", "../*/*/*.go", "*/*.yaml", "*/*.json"} {
		for name, text := range pages(t, pattern) {
			for _, l := range link.FindAllStringSubmatch(text, -1) {
				links++
				b, err := os.ReadFile(filepath.Join("..", l[1]))
				if err != nil {
					t.Errorf("%s: %s leads nowhere", name, l[0])
				} else if l[2] != "" && !strings.Contains(anchors(string(b)), " "+l[2]+" ") {
					t.Errorf("%s: %s has no such heading", name, l[0])
				}
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links found", links)
	}
}

// Every metric, label and outcome that the page names is in the documentation of package tracing or, if
// it is a metric, on the page for operators.
func TestMetricNames(t *testing.T) {
	known, metrics, text := read(t, "../tracing/doc.go"), read(t, "operate.md"), read(t, "http-reference.md")
	_, text, _ = strings.Cut(text, "## What to watch")
	names := regexp.MustCompile("`(holdfast\\.[a-z._]+)`").FindAllStringSubmatch(text, -1)
	if len(names) < 10 {
		t.Errorf("only %d names found", len(names))
	}
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^//\t`+regexp.QuoteMeta(name[1])+` `).MatchString(known) && !strings.Contains(metrics, "\n| "+name[0]+" | ") {
			t.Errorf("%s is not known", name[1])
		}
	}
	outcomes := regexp.MustCompile("= `([a-z ]+)`(?:, `([a-z ]+)`)?").FindAllStringSubmatch(text, -1)
	if len(outcomes) < 6 {
		t.Errorf("only %d outcomes found", len(outcomes))
	}
	for _, names := range outcomes {
		for _, name := range names[1:] {
			if name != "" && name != "once" && name != "payment" && !regexp.MustCompile(`(?m)^//\t`+name+` {2}`).MatchString(known) {
				t.Errorf("outcome %q is not known", name)
			}
		}
	}
}

// anchors returns GitHub's anchors of the headings of a page, with a space around each.
func anchors(page string) string {
	names := " "
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		plain := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
		names += strings.ReplaceAll(strings.TrimSpace(plain), " ", "-") + " "
	}
	return names
}

func pages(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, f := range files {
			texts[f] = read(t, f)
		}
	}
	return texts
}

// squeeze replaces each run of white space by one space.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
