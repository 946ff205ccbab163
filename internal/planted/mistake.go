package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mistake is one that somebody could make, and the test that finds it.
type mistake struct {
	name  string
	what  string // in one sentence
	edits []edit // several where one alone is caught by another safeguard of the code, and so changes nothing
	pkg   string // of the test, from the root
	test  string
	fast  bool
}

// edit replaces old, which is in file once, by new.
type edit struct{ file, old, new string }

// all are the mistakes, as they are listed.
func all() []mistake {
	return slices.Concat(leases(), scripts(), waits(), above())
}

// overlay writes the changed files into dir, and what go test -overlay needs to use them instead.
func (m mistake) overlay(root, dir string) (string, error) {
	changed, err := m.changed(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range changed {
		from, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, fmt.Sprint(len(replace))+"_"+filepath.Base(file))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}

// changed returns the files with the mistake, by name.
func (m mistake) changed(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("the mistake has rotted: %s has this %d times, must be once: %q", e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}
