//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/pgtest"
)

// The story is as expected, on a server that the program starts and on one that is there.
func TestRun(t *testing.T) {
	pgtest.Need(t)
	server, err := pgtest.Start(pgtest.Fast)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	for _, dsn := range []string{"", server.DSN("postgres")} {
		var out strings.Builder
		if err := run(t.Context(), &out, dsn); err != nil {
			t.Errorf("%v\n%s", err, &out)
		}
		if !regexp.MustCompile(`(?s)without a lock: .*Exclusive: .*Wake and Exclusive: .* up to 1 of its jobs at once\n$`).MatchString(out.String()) {
			t.Error(out.String())
		}
	}
}
