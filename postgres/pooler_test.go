//go:build unix

package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// pooler returns a pool that connects to the database of another one through PgBouncer in transaction
// mode.
func pooler(t *testing.T, direct *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	pgtest.Need(t, "pgbouncer")
	p, err := running.StartPooler(20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return connect(t, p.DSN(direct.Config().ConnConfig.Database)+" default_query_exec_mode=exec") // prepared statements need another connection mode
}

// Behind a pooler the backend conforms, if it listens on a connection to the server itself.
// Shows: P8
func TestConformanceBehindPooler(t *testing.T) {
	testlevel.Full(t)
	direct := database(t)
	pool := pooler(t, direct)
	backendtest.Run(t, func(t *testing.T) backendtest.World {
		t.Helper()
		return world(t, pool, postgres.Options{Listen: direct.Config().ConnConfig})
	})
}

// Behind a pooler in transaction mode no notification arrives, although LISTEN succeeds. So the
// subscription is not up, and no key waits for the Locker.
// Shows: B8
func TestListenBehindPooler(t *testing.T) {
	direct := database(t)
	pool := pooler(t, direct)
	through, far := world(t, pool, postgres.Options{}).Backend("through"), world(t, pool, postgres.Options{Listen: direct.Config().ConnConfig}).Backend("direct")
	defer through.Close()
	defer far.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	up := map[string]chan backend.Notification{"through": make(chan backend.Notification, 9), "direct": make(chan backend.Notification, 9)}
	wg.Go(func() { through.Listen(ctx, func(n backend.Notification) { up["through"] <- n }) })
	until(t, direct, `SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%pg_notify%' AND query NOT LIKE '%pg_stat_activity%'`)
	wg.Go(func() { far.Listen(ctx, func(n backend.Notification) { up["direct"] <- n }) })
	<-up["direct"]
	time.Sleep(100 * time.Millisecond) // longer than an echo takes
	until(t, direct, `SELECT array_agg(application_name) = '{holdfast direct}' FROM pg_stat_activity WHERE application_name LIKE 'holdfast%'`)
	select {
	case n := <-up["through"]:
		t.Errorf("notification %+v through the pooler", n)
	default:
	}
	cancel()
	wg.Wait()
}

// told is an Observer that gets what is wrong with the setup.
type told chan string

func (told) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (told) Traceparent(context.Context) string                             { return "" }
func (c told) Event(_ context.Context, e event.Event) {
	if m, ok := e.(event.Misconfigured); ok {
		c <- m.Problem
	}
}

// Without notifications a Locker works, and its Observer is told once what to do.
func TestNoEchoIsReported(t *testing.T) {
	testlevel.Full(t)
	c := make(told, 9)
	l, err := postgres.New(pooler(t, database(t)), postgres.Options{Options: lockcore.Options{Observer: c}})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context(), "k", lockcore.Terms{}) // the subscription begins when it is a second old
	if err != nil {
		t.Fatal(err)
	}
	if problem := <-c; !strings.Contains(problem, "Set Options.Listen") {
		t.Errorf("the problem is %q", problem)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(c) > 0 {
		t.Errorf("told again: %q", <-c)
	}
}
