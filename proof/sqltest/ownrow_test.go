//go:build unix

package sqltest_test

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// ownRow returns the statements in the documentation of fence.SQL for a row with its own fence,
// in the dialect of s.
func ownRow(t *testing.T, s *server) (alter, update string) {
	t.Helper()
	b, err := os.ReadFile("../../fence/sql.go")
	if err != nil {
		t.Fatal(err)
	}
	alters := regexp.MustCompile(`(?m)^//\t(ALTER TABLE .*)$`).FindAllStringSubmatch(string(b), -1)
	updates := regexp.MustCompile(`(?m)^//\t(UPDATE .*)\n//\t(WHERE .*)$`).FindAllStringSubmatch(string(b), -1)
	if len(alters) != 3 || len(updates) != 1 {
		t.Fatalf("the docs have %q and %q", alters, updates)
	}
	alter, update = alters[0][1], updates[0][1]+" "+updates[0][2]
	switch s.dialect {
	case fence.Postgres:
	case fence.SQLite:
		alter = alters[2][1]
	case fence.MySQL:
		alter, update = alters[1][1], regexp.MustCompile(`\$\d`).ReplaceAllString(update, "?")
	}
	return alter, update
}

// accounts creates a table with one row.
func accounts(t *testing.T, s *server) *sql.DB {
	t.Helper()
	settings := ""
	if s.dialect == fence.MySQL {
		settings = "?clientFoundRows=true"
	}
	db, _ := s.openAs(t, settings)
	exec1(t, db, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
	exec1(t, db, "INSERT INTO accounts (id, balance) VALUES (42, 100)")
	return db
}

// rows returns the number of rows that the documented statement affects under h.
func rows(t *testing.T, s *server, db *sql.DB, update string, h fence.Hold) int64 {
	t.Helper()
	args := []any{90, h.Token, h.ID, 42}
	if s.dialect == fence.MySQL {
		args = append(args, h.Token, h.Token, h.ID)
	}
	res, err := db.ExecContext(t.Context(), update, args...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The documented statement fences a row that existed before the columns, and one that was inserted
// after them. No affected row means that the hold is stale. MySQL needs clientFoundRows for that,
// because otherwise a write that changes nothing affects no row. Ids are bytes.
// Shows: F6
func TestOwnRow(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		for _, before := range []bool{true, false} {
			db := accounts(t, s)
			alter, update := ownRow(t, s)
			exec1(t, db, alter)
			if !before {
				exec1(t, db, "DELETE FROM accounts")
				exec1(t, db, "INSERT INTO accounts (id, balance) VALUES (42, 100)")
			}
			for i, step := range []struct {
				n     int64
				id    string
				stale bool
			}{
				{5, "a", false},
				{5, "a", false},
				{5, "b", true},
				{5, "A", true},
				{5, "a ", true},
				{4, "a", true},
				{6, "b", false},
				{6, "b", false},
				{7, strings.Repeat("c", 64), false},
			} {
				if n := rows(t, s, db, update, hold("account:42", step.n, step.id)); (n == 0) != step.stale {
					t.Errorf("row existed before %v, step %d: %d rows", before, i, n)
				}
			}
		}
	})
}

// If the columns lack the documented NOT NULL DEFAULT, the statement refuses every hold.
func TestOwnRowNull(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := accounts(t, s)
		alter, update := ownRow(t, s)
		exec1(t, db, regexp.MustCompile(` NOT NULL DEFAULT (0|'')`).ReplaceAllString(alter, ""))
		if n := rows(t, s, db, update, hold("account:42", 5, "a")); n != 0 {
			t.Errorf("%d rows; is the rule still needed?", n)
		}
	})
}
