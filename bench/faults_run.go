package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
)

// measureFaults runs every contender at every point of s at the same time, because trials wait most
// of the time.
func (r *report) measureFaults(ctx context.Context, srv *server, s scenario, progress io.Writer) error {
	if err := srv.clean(ctx); err != nil {
		return err
	}
	type run struct {
		point   point
		library string
		cell    result
		err     error
	}
	var runs []*run
	for _, p := range s.points {
		for _, name := range r.options.librariesOf(s) {
			if c, _ := contenderNamed(name); c.at(p.Moment) {
				runs = append(runs, &run{point: p, library: name})
			}
		}
	}
	var all sync.WaitGroup
	for _, one := range runs {
		prefix := newPrefix(s)
		all.Go(func() {
			one.cell, one.err = runOnce(ctx, srv, s, one.point, one.library, "", prefix, r.options.window)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, one := range runs {
		err := one.err
		if err == nil {
			r.cells = append(r.cells, one.cell)
			err = one.cell.doubt()
		}
		if err != nil {
			r.fail(one.library, err)
			fmt.Fprintln(progress, err)
			continue
		}
		fmt.Fprintf(progress, "%s %s: %v of %v rounds with two at once\n", strings.TrimSpace(s.name+" "+one.point.Name), one.library,
			one.cell.Violations, one.cell.Figures[conclusive])
	}
	return nil
}
