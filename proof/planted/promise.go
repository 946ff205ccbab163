package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// promises returns the numbers of the promises of GUARANTEES.md by the tests that show them. The
// page that it reads is written from the comments of the tests.
func promises(root string) (map[string][]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs/guarantee-tests.md"))
	if err != nil {
		return nil, err
	}
	numbers := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		row := regexp.MustCompile(`^\| ([A-Z][0-9]+) \|`).FindStringSubmatch(line)
		if row == nil {
			continue
		}
		for _, test := range regexp.MustCompile(`\bTest\w+`).FindAllString(line, -1) {
			numbers[test] = append(numbers[test], row[1])
		}
	}
	return numbers, nil
}
