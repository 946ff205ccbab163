package doctor_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/doctor.md describes exactly the codes of Check, each under its own heading with meaning and
// remedy. It also lists the least rights.
func TestCheckDocs(t *testing.T) {
	source, err := os.ReadFile("check.go")
	ok(t, err)
	page, err := os.ReadFile("../docs/doctor.md")
	ok(t, err)
	var codes, described []string
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+ +Code = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		codes = append(codes, m[1])
	}
	for _, part := range strings.Split(string(page), "\n### `")[1:] {
		code, text, _ := strings.Cut(part, "`\n")
		described = append(described, code)
		if !strings.Contains(text, "\n**Means:** ") || !strings.Contains(text, "\n**Do:** ") {
			t.Errorf("%s lacks its meaning or its remedy", code)
		}
	}
	slices.Sort(codes)
	slices.Sort(described)
	if len(codes) < 20 || !slices.Equal(codes, described) {
		t.Errorf("codes %q, described %q", codes, described)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), least) {
		t.Errorf("the least rights are not %q", least)
	}
}
