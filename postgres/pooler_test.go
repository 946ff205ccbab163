//go:build unix

package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/postgres"
)

// pooler returns a pool that connects to the database of another one through PgBouncer in transaction
// mode.
func pooler(t *testing.T, direct *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	pgtest.Need(t, "pgbouncer")
	p, err := running.StartPooler()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return connect(t, p.DSN(direct.Config().ConnConfig.Database)+" default_query_exec_mode=exec") // prepared statements need another connection mode
}

// Behind a pooler the backend conforms, if it listens on a connection to the server itself.
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
