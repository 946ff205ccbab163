package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

const (
	pingEvery = 10 * time.Second // period of pings that detect a dead connection
	firstEcho = time.Second      // how long the first echo may take; the next ones longer
	lastEcho  = 30 * time.Second

	listeningFor = 250 * time.Millisecond // how long the list of those that listen is used; it costs as much CPU time as a read and a write
)

func channel(locker string) string { return "holdfast_" + locker }

// Notify implements rows.Store. It is a transaction of its own, because transactions that notify wait
// for each other, and this one does not wait for the disk.
func (s *store) Notify(ctx context.Context, notices []rules.Notice) error {
	channels, payloads := make([]string, len(notices)), make([]string, len(notices))
	for i, n := range notices {
		channels[i], payloads[i] = channel(n.Locker), encode(n.Notification)
	}
	return s.notify(ctx, channels, payloads)
}

func (s *store) notify(ctx context.Context, channels, payloads []string) error {
	return s.use(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SELECT pg_notify(c, p) FROM unnest($1::text[], $2::text[]) AS n (c, p)`, channels, payloads)
		return err
	})
}

// encode returns the payload of a notification. Names and requests may have any bytes.
func encode(n backend.Notification) string {
	return fmt.Sprintf("%d %d %d %x %x", n.Event, n.Kind, n.In.Microseconds(), n.Request, n.Name)
}

// decode is the inverse of encode. It returns false for another text, because anyone may notify.
func decode(payload string) (n backend.Notification, ok bool) {
	f := strings.Split(payload, " ")
	if len(f) != 5 {
		return n, false
	}
	var in int64
	if _, err := fmt.Sscanf(strings.Join(f[:3], " "), "%d %d %d", &n.Event, &n.Kind, &in); err != nil || n.Event == backend.EventSubscribed {
		return n, false
	}
	request, err1 := hex.DecodeString(f[3])
	name, err2 := hex.DecodeString(f[4])
	n.In, n.Request, n.Name = time.Duration(in)*time.Microsecond, string(request), string(name)
	return n, err1 == nil && err2 == nil
}

// Listening implements rows.Store. A listening connection has the name of its Locker.
func (s *store) Listening(ctx context.Context) (all map[string]int, err error) {
	err = s.use(ctx, func(c *pgx.Conn) error {
		found, err := c.Query(ctx, `SELECT substr(application_name, 10), count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'holdfast %' GROUP BY 1`)
		if err != nil {
			return err
		}
		all = map[string]int{}
		var locker string
		var n int
		_, err = pgx.ForEachRow(found, []any{&locker, &n}, func() error {
			all[locker] = n
			return nil
		})
		return err
	})
	return all, err
}

// Listen implements rows.Store.
//
// Behind a pooler in transaction mode LISTEN succeeds, but notifications do not arrive. So only an echo
// means that the subscription is up: a notification that another connection sends while this one is
// idle. Until then the Locker is not listed as one that listens, and no key waits for it.
func (s *store) Listen(ctx context.Context, locker string, on func(backend.Notification)) {
	conn, err := s.listenOn(ctx, locker)
	if err != nil {
		return
	}
	defer hangUp(ctx, conn)
	if !s.echo(ctx, conn, locker, on) {
		return
	}
	if _, err := conn.Exec(ctx, "SELECT set_config('application_name', $1, false)", "holdfast "+locker); err != nil {
		return
	}
	on(backend.Notification{Event: backend.EventSubscribed})
	for {
		payload, ok := wait(ctx, conn, pingEvery)
		if n, is := decode(payload); is {
			on(n)
		}
		if ok {
			continue
		}
		timed, cancel := context.WithTimeout(ctx, backend.CallTimeout)
		err := conn.Ping(timed)
		cancel()
		if err != nil {
			return
		}
	}
}

// listenOn returns a connection that listens on the channel of a Locker.
func (s *store) listenOn(ctx context.Context, locker string) (*pgx.Conn, error) {
	conn, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel(locker)}.Sanitize()); err != nil {
		hangUp(ctx, conn)
		return nil, err
	}
	return conn, nil
}

func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backend.CallTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// noEcho is the problem of a connection that listens, and gets nothing.
const noEcho = "postgres: no notification arrives on the connection that listens, as behind a pooler in transaction mode. " +
	"So a waiting call asks only every 2 s, and those of other processes may overtake it. Set Options.Listen to the address of PostgreSQL itself"

// echo sends echoes until one arrives. It returns false if the connection or ctx ends first.
func (s *store) echo(ctx context.Context, conn *pgx.Conn, locker string, on func(backend.Notification)) bool {
	for limit := firstEcho; ; limit = min(2*limit, lastEcho) {
		sent := rand.Text()
		timed, cancel := context.WithTimeout(ctx, backend.CallTimeout)
		_ = s.notify(timed, []string{channel(locker)}, []string{sent}) //planted:postgres-echo
		cancel()
		for end := time.Now().Add(limit); ; {
			payload, ok := wait(ctx, conn, time.Until(end))
			if payload == sent {
				return true
			}
			if n, is := decode(payload); is {
				on(n)
			}
			if !ok {
				break
			}
		}
		if ctx.Err() != nil || conn.IsClosed() {
			return false
		}
		if limit > firstEcho && s.misconfigured != nil { // the first one may be slow
			s.reported.Do(func() { s.misconfigured(noEcho) })
		}
	}
}

// wait waits for a notification, and returns its payload, or false at the end of d or of the connection.
func wait(ctx context.Context, conn *pgx.Conn, d time.Duration) (payload string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", false
	}
	return n.Payload, true
}
