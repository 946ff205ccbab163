//go:build unix

package postgres_test

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// inLocks are the options of the page about rights.
var inLocks = postgres.Options{Schema: "locks"}

// granted makes the table in the schema locks, and a user whose rights are those that docs/security.md
// gives to a user of that name.
func granted(t *testing.T, name string) (admin, as *pgxpool.Pool, id string) {
	t.Helper()
	admin = database(t)
	run(t, admin, "CREATE SCHEMA locks")
	run(t, admin, postgres.Create("locks"))
	id, as = role(t, admin)
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	grants := 0
	for line := range strings.Lines(string(page)) {
		if grant, ok := strings.CutSuffix(strings.TrimSpace(line), " TO "+name+";"); ok && strings.HasPrefix(grant, "GRANT ") {
			run(t, admin, grant+" TO "+id)
			grants++
		}
	}
	if grants != 2 {
		t.Errorf("docs/security.md has %d statements for %s, want 2", grants, name)
	}
	return admin, as, id
}

// The backend conforms with the published rights.
// Shows: P10
func TestConformanceWithLeastRights(t *testing.T) {
	testlevel.Full(t)
	_, as, _ := granted(t, "locker")
	backendtest.Run(t, func(t *testing.T) backendtest.World {
		t.Helper()
		return world(t, as, inLocks)
	})
}

// Without any one of the published rights something is refused.
// Shows: P10
func TestLeastRights(t *testing.T) {
	testlevel.Full(t)
	admin, as, id := granted(t, "locker")
	refused := func() bool {
		t.Helper()
		l := locker(t, as, inLocks)
		lease, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		if err == nil {
			err = lease.Release(t.Context())
		}
		run(t, admin, "UPDATE locks.holdfast_keys SET due = 0")
		_, purged := postgres.Purge(t.Context(), as, inLocks)
		for _, err := range []error{err, purged} {
			if err != nil && !strings.Contains(err.Error(), "permission denied") {
				t.Error(err)
			}
		}
		return err != nil || purged != nil
	}
	if refused() {
		t.Error("refused with the published rights")
	}
	for _, right := range []string{"USAGE ON SCHEMA locks", "SELECT ON locks.holdfast_keys", "INSERT ON locks.holdfast_keys", "UPDATE ON locks.holdfast_keys", "DELETE ON locks.holdfast_keys"} {
		run(t, admin, "REVOKE "+right+" FROM "+id)
		if !refused() {
			t.Errorf("nothing is refused without %s", right)
		}
		run(t, admin, "GRANT "+right+" TO "+id)
	}
}

// With the published rights to read, a Locker lists and shows keys, also on the page, and changes none.
// Shows: P10
func TestRightsToRead(t *testing.T) {
	testlevel.Full(t)
	admin, as, _ := granted(t, "reader")
	holder := locker(t, admin, inLocks)
	lease, err := holder.Acquire(t.Context(), "account:42", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()
	l := locker(t, as, inLocks)
	if h, err := l.Inspect(t.Context(), event.KindExclusive, "account:42"); err != nil || h.State != lockcore.StateHeld {
		t.Errorf("Inspect returns %+v, %v", h, err)
	}
	names := ""
	for e, err := range doctor.List(t.Context(), l, doctor.ListOptions{RecordHeads: true}) {
		if err != nil {
			t.Fatal(err)
		}
		names += e.Key
	}
	if names != "account:42" {
		t.Errorf("List yields %q", names)
	}
	answer := httptest.NewRecorder()
	inspect.New(l, inspect.Options{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/key?kind=exclusive&key=account:42", nil))
	if body := answer.Body.String(); answer.Code != 200 || !strings.Contains(body, "held") {
		t.Errorf("the page of the key: %d %s", answer.Code, body)
	}
	refused(t, as, inLocks, "permission denied")
	if err := l.Revoke(t.Context(), event.KindExclusive, "account:42"); err == nil || lease.Context().Err() != nil {
		t.Errorf("Revoke returns %v", err)
	}
}
