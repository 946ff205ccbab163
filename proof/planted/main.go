package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the root module")
	only := flag.String("only", "", "only these `names`, separated by commas")
	list := flag.Bool("list", false, "list the mistakes and exit")
	beside := flag.Int("p", 2, "`number` of mistakes at the same time")
	flag.Parse()
	chosen, err := choose(all(), *only)
	if err == nil && *list {
		var broken map[string][]string
		if broken, err = promises(*root); err == nil {
			for _, m := range chosen {
				fmt.Printf("%-28s %-50s %-14s %s\n", m.name, m.test, strings.Join(broken[m.test], ","), m.what)
			}
			return
		}
	}
	if err == nil {
		err = run(os.Stdout, *root, chosen, max(*beside, 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

func choose(from []mistake, only string) ([]mistake, error) {
	var chosen []mistake
	names := strings.Split(only, ",")
	for _, m := range from {
		if only == "" || slices.Contains(names, m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 || only != "" && len(chosen) != len(names) {
		return nil, errors.New("there is no such mistake, see -list")
	}
	return chosen, nil
}

// run reports for each mistake the test that found it. It fails if a mistake was not found.
func run(w io.Writer, root string, mistakes []mistake, beside int) error {
	start := time.Now()
	marked, err := find(root)
	if err != nil {
		return err
	}
	if err := clean(w, root, mistakes, beside); err != nil {
		return err
	}
	caught := 0
	var mu sync.Mutex
	each(mistakes, beside, func(m mistake) {
		start := time.Now()
		err := plant(root, marked, m)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			caught++
			fmt.Fprintf(w, "%-28s caught by %s  %.1f s\n", m.name, m.test, time.Since(start).Seconds())
		} else {
			fmt.Fprintf(w, "%-28s FAILED: %v\n  (%s)\n", m.name, err, m.what)
		}
	})
	fmt.Fprintf(w, "planted mistakes: %d of %d caught in %.0f s\n", caught, len(mistakes), time.Since(start).Seconds())
	if caught < len(mistakes) {
		return fmt.Errorf("%d mistakes were not caught", len(mistakes)-caught)
	}
	return nil
}

// clean runs the tests on the unchanged code.
func clean(w io.Writer, root string, mistakes []mistake, beside int) error {
	tests := map[string][]string{}
	var pkgs []string
	for _, m := range mistakes {
		if tests[m.pkg] == nil {
			pkgs = append(pkgs, m.pkg)
		}
		if !slices.Contains(tests[m.pkg], m.test) {
			tests[m.pkg] = append(tests[m.pkg], m.test)
		}
	}
	var mu sync.Mutex
	var errs []error
	each(pkgs, beside, func(pkg string) {
		start := time.Now()
		r, err := test(root, "", pkg, tests[pkg])
		if err == nil {
			err = r.passed(tests[pkg])
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", pkg, err))
			return
		}
		fmt.Fprintf(w, "without a mistake: %d tests of %s pass  %.1f s\n", len(tests[pkg]), pkg, time.Since(start).Seconds())
	})
	return errors.Join(errs...)
}

// plant returns nil if the test has found m.
func plant(root string, marked places, m mistake) error {
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(root, marked, dir)
	if err != nil {
		return err
	}
	r, err := test(root, overlay, m.pkg, []string{m.test})
	if err != nil {
		return err
	}
	return r.found(m.test)
}

// each calls do for each element of list, at most beside of them at the same time.
func each[T any](list []T, beside int, do func(T)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, beside)
	for _, v := range list {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			do(v)
		})
	}
	wg.Wait()
}
