package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// mistake is a possible mistake, and the test that finds it.
type mistake struct {
	name  string
	what  string // in one sentence
	edits []edit // several if another safeguard of the code hides each of them alone
	pkg   string // directory of the test's package, from the root
	test  string
}

// all returns the mistakes in the order of the list.
func all() []mistake {
	return slices.Concat(leases(), scripts(), shares(), rates(), pauses(), restrictions(), rules(), rows(), waits(), above(), quorum())
}

// overlay writes the changed files into dir, and returns the path of the file for go test -overlay.
func (m mistake) overlay(root string, marked places, dir string) (string, error) {
	changed, err := m.changed(marked)
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
func (m mistake) changed(marked places) (map[string]string, error) {
	before, changes := map[string]string{}, map[string][]change{}
	for _, e := range m.edits {
		pl, err := marked.one(e.at)
		if err != nil {
			return nil, err
		}
		s, text, err := e.do(marked, pl)
		if err != nil {
			return nil, err
		}
		before[pl.file] = pl.text
		changes[pl.file] = append(changes[pl.file], change{s, text})
	}
	files := map[string]string{}
	for file, list := range changes {
		text, err := apply(before[file], list)
		if err != nil {
			return nil, err
		}
		files[file] = text
	}
	return files, nil
}
