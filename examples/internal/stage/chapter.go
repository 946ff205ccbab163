package stage

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
)

// Chapter is a part of a program. Its result is a row of the table at the end: String separates the
// columns with tabs. The program fails if the result is not right.
type Chapter[R fmt.Stringer] struct {
	Title string
	Tell  func(context.Context) (R, error)
	Right func(R) bool
}

// Tell tells one chapter after another, and prints the table.
func Tell[R fmt.Stringer](ctx context.Context, s *Stage, columns string, chapters []Chapter[R]) error {
	table := tabwriter.NewWriter(s.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "\t%s\n", columns)
	for i, c := range chapters {
		fmt.Fprintln(s.Out)
		s.Say("%d. %s", i+1, c.Title)
		result, err := c.Tell(ctx)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Title, err)
		}
		if !c.Right(result) {
			commas := strings.NewReplacer("\t", ", ")
			return fmt.Errorf("%s: unexpected result (%s): %s", c.Title, commas.Replace(columns), commas.Replace(result.String()))
		}
		fmt.Fprintf(table, "%s\t%s\n", c.Title, result)
	}
	fmt.Fprintln(s.Out)
	return table.Flush()
}
