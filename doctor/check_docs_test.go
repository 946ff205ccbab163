package doctor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of docs/operate.md has exactly the codes of Check, with their severities and the
// descriptions of the constants. The page also lists the least rights.
func TestCheckDocs(t *testing.T) {
	files, err := filepath.Glob("check*.go")
	ok(t, err)
	found := map[string][]string{} // from a constant to the severities of its findings
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`\b(code\w+), (?:Severity(\w+)|severity)\b`).FindAllStringSubmatch(source(t, f), -1) {
			if found[m[1]] = append(found[m[1]], strings.ToLower(m[2])); m[2] == "" { // a variable
				found[m[1]] = append(found[m[1]], "problem", "warning")
			}
		}
	}
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^\t(code\w+) +Code = "([a-z-]+)" +// (.*)$`).FindAllStringSubmatch(source(t, "check.go"), -1) {
		var severities []string
		for _, s := range []string{"problem", "warning", "note"} {
			if slices.Contains(found[m[1]], s) {
				severities = append(severities, s)
			}
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m[2], strings.Join(severities, ", "), m[3]))
	}
	page := source(t, "../docs/operate.md")
	if table := "| code | severity | reports |\n|---|---|---|\n" + strings.Join(rows, "") + "\n"; len(rows) < 20 || !strings.Contains(page, table) {
		t.Errorf("docs/operate.md does not have this table:\n%s", table)
	}
	if !strings.Contains(strings.Join(strings.Fields(page), " "), least) {
		t.Errorf("the least rights are not %q", least)
	}
}

func source(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	ok(t, err)
	return string(b)
}
