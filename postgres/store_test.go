//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
	"github.com/holdfast-go/holdfast/postgres"
)

func storeOn(t *testing.T, pool *pgxpool.Pool) rows.Store {
	t.Helper()
	s, err := postgres.NewStore(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// readRow reads a row without what only Read sets.
func readRow(t *testing.T, s rows.Store, name string) (r rows.Row, now int64) {
	t.Helper()
	all, err := s.Read(t.Context(), []string{name})
	if err != nil || len(all) != 1 {
		t.Fatalf("Read returns %d rows and error %v", len(all), err)
	}
	r = all[0]
	now, r.Now = r.Now, 0
	return r, now
}

func grant(name string) rows.Grant {
	return rows.Grant{Name: name, Owner: "owner", Locker: "locker", Holder: "holder", Fingerprint: "f", Lease: 30e6, Retention: 60e6}
}

// A row comes back as it was written. Texts may have any bytes.
func TestRows(t *testing.T) {
	s := storeOn(t, database(t))
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, rnd.IntN(40))
		for i := range b {
			b[i] = byte(rnd.IntN(256))
		}
		return string(b)
	}
	var names []string
	var writes []rows.Write
	_, now := readRow(t, s, "x:none")
	for i := range 100 {
		r := rows.Row{Version: rnd.Int64(), Owner: text(), Locker: text(), Holder: text(), Fingerprint: text(), Token: rnd.Int64(), Due: rnd.Int64N(1 << 30)}
		if i%2 == 0 {
			r.End, r.Length, r.Expires = rnd.Int64(), -rnd.Int64(), rnd.Int64()
		}
		if data := text(); data != "" {
			r.Data = []byte(data)
		}
		name := fmt.Sprintf("x:%c\x00\xff%d%s", rune(rnd.IntN(256)), i, text())
		names, writes = append(names, name), append(writes, rows.Write{Name: name, Read: now, Row: r, Durable: i%3 == 0})
	}
	check := func() {
		t.Helper()
		all, err := s.Read(t.Context(), names)
		if err != nil || len(all) != len(names) {
			t.Fatalf("Read returns %d rows and error %v", len(all), err)
		}
		for i, r := range all {
			if r.Now < now {
				t.Errorf("the time %d is before %d", r.Now, now)
			}
			if r.Now = 0; !reflect.DeepEqual(r, writes[i].Row) {
				t.Errorf("row %q is %+v, want %+v", names[i], r, writes[i].Row)
			}
		}
	}
	for i, err := range s.Write(t.Context(), writes) {
		if err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	check()
	for i := range writes { // an update
		w := &writes[i]
		w.Was, w.Row.Version, w.Row.Owner, w.Row.Expires, w.Row.Data = w.Row.Version, w.Row.Version+1, text(), 0, nil
		w.Row.Due += int64(i % 2)
	}
	_, now = readRow(t, s, "x:none")
	for i := range writes {
		writes[i].Read = now
	}
	writes[50].Was++ // another client has changed it
	for i, err := range s.Write(t.Context(), writes) {
		if want := i == 50; errors.Is(err, rows.ErrConflict) != want || err != nil && !want {
			t.Errorf("update %d: %v", i, err)
		}
	}
	old, _ := readRow(t, s, names[50])
	writes[50].Row = old
	check()
	again := writes[51]
	again.Row.Due = 0
	again.Was = again.Row.Version
	if err := s.Write(t.Context(), []rows.Write{again})[0]; err != nil {
		t.Error(err)
	}
	if r, _ := readRow(t, s, names[51]); r.Due != writes[51].Row.Due {
		t.Errorf("due is %d, want %d, which only grows", r.Due, writes[51].Row.Due)
	}
}

// A write that comes more than a second after its read changes nothing.
func TestLateWrite(t *testing.T) {
	s := storeOn(t, database(t))
	_, now := readRow(t, s, "x:new")
	if _, granted, err := s.Grant(t.Context(), grant("x:old")); err != nil || !granted {
		t.Fatal(granted, err)
	}
	old, _ := readRow(t, s, "x:old")
	for _, late := range []bool{true, false} {
		for _, w := range []rows.Write{
			{Name: "x:new", Row: rows.Row{Version: 7}},
			{Name: "x:old", Was: old.Version, Row: rows.Row{Version: 8}},
			{Name: "x:old", Was: 8, Delete: true},
		} {
			w.Read = now
			if late {
				w.Read -= rows.WriteTime
				if w.Delete {
					w.Was = old.Version
				}
			}
			if err := s.Write(t.Context(), []rows.Write{w})[0]; errors.Is(err, rows.ErrConflict) != late || err != nil && !late {
				t.Errorf("late %t: %+v: %v", late, w, err)
			}
		}
	}
}

// The plain statements change a free row or a plain hold, and nothing else. Tokens grow from that of the
// row as it is when the statement has its lock.
// Shows: I3
func TestPlain(t *testing.T) {
	pool := database(t)
	s := storeOn(t, pool)
	first, granted, err := s.Grant(t.Context(), grant("o:k"))
	if err != nil || !granted {
		t.Fatal(granted, err)
	}
	r, now := readRow(t, s, "o:k")
	want := rows.Row{
		Version: r.Version, Owner: "owner", Locker: "locker", Holder: "holder", Fingerprint: "f", Token: first, End: first + 30e6, Length: 30e6,
		Expires: first + 60e6, Due: (first+60e6)/rows.Hour + 2,
	}
	if !reflect.DeepEqual(r, want) || first > now || first < now-60e6 {
		t.Errorf("the row is %+v, want %+v, now is %d", r, want, now)
	}
	other := grant("o:k")
	other.Owner = "other"
	if _, granted, err := s.Grant(t.Context(), other); granted || err != nil {
		t.Errorf("a held key is granted: %t, %v", granted, err)
	}
	if freed, err := s.Free(t.Context(), "o:k", "other", 0); freed || err != nil {
		t.Errorf("a hold is freed by another: %t, %v", freed, err)
	}
	future := now + 3600e6
	if freed, err := s.Free(t.Context(), "o:k", "owner", future); !freed || err != nil {
		t.Errorf("Free returns %t, %v", freed, err)
	}
	if free, _ := readRow(t, s, "o:k"); free.Version == r.Version || !reflect.DeepEqual(free, rows.Row{Version: free.Version, Token: future, Due: free.Due}) || free.Due < r.Due {
		t.Errorf("the free row is %+v", free)
	}
	if token, granted, err := s.Grant(t.Context(), other); !granted || err != nil || token != future+1 {
		t.Errorf("Grant returns %d, %t, %v, want token %d", token, granted, err, future+1)
	}
	if finished, err := s.Finish(t.Context(), "o:k", "owner", []byte("data"), 7200e6); finished || err != nil {
		t.Errorf("a hold is finished by another: %t, %v", finished, err)
	}
	if finished, err := s.Finish(t.Context(), "o:k", "other", []byte("data"), 7200e6); !finished || err != nil {
		t.Errorf("Finish returns %t, %v", finished, err)
	}
	done, now := readRow(t, s, "o:k")
	if done.Owner != "" || done.Locker != "" || done.Holder != "holder" || done.Fingerprint != "f" || done.Token != future+1 || string(done.Data) != "data" ||
		done.Expires > now+7200e6 || done.Expires < now+7100e6 || done.Due != done.Expires/rows.Hour+2 {
		t.Errorf("the finished row is %+v", done)
	}
	if _, granted, err := s.Grant(t.Context(), other); granted || err != nil {
		t.Errorf("a done key is granted: %t, %v", granted, err)
	}
}

// locked runs f in a goroutine while another transaction has changed a row, and waits until f waits for
// that row. end ends the transaction, and then f.
func locked(t *testing.T, pool *pgxpool.Pool, change string, f func()) (end func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	until(t, pool, `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	return func() {
		t.Helper()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
	}
}

// until waits until a query returns true.
func until(t *testing.T, pool *pgxpool.Pool, query string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var is bool
		err := pool.QueryRow(t.Context(), query).Scan(&is)
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s, %v", query, err)
		}
	}
}

// A grant that has waited for a lock gets a token that is greater than that of the row as it is now,
// although its clock was read before.
// Shows: I3
func TestTokenAfterALock(t *testing.T) {
	pool := database(t)
	s := storeOn(t, pool)
	token, _, err := s.Grant(t.Context(), grant("x:k"))
	if err != nil {
		t.Fatal(err)
	}
	var second int64
	var granted bool
	other := grant("x:k")
	other.Owner = "other"
	end := locked(t, pool, `UPDATE holdfast_keys SET token = token + 60000000, owner = NULL, version = 1`, func() {
		second, granted, err = s.Grant(context.WithoutCancel(t.Context()), other)
	})
	if end(); err != nil || !granted || second != token+60e6+1 {
		t.Errorf("Grant returns %d, %t, %v, want token %d", second, granted, err, token+60e6+1)
	}
}

// A statement that has no reply at the end of its ctx is not canceled: it may still take effect.
func TestNothingIsCanceled(t *testing.T) {
	pool := database(t)
	s := storeOn(t, pool)
	if _, _, err := s.Grant(t.Context(), grant("x:k")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	other := grant("x:k")
	other.Owner = "other"
	end := locked(t, pool, `UPDATE holdfast_keys SET owner = NULL, version = 1`, func() {
		_, granted, err := s.Grant(ctx, other)
		if granted {
			t.Error("the key is granted, although ctx has ended")
		}
		failed <- err
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || !s.MayTakeEffect(err) || s.Permanent(err) {
		t.Errorf("error %v, want that the effect is unknown", err)
	}
	end()
	until(t, pool, `SELECT coalesce(owner = 'other', false) FROM holdfast_keys`)
}

// Errors are permanent or not, and say whether a statement may have had its effect.
func TestErrors(t *testing.T) {
	pool := database(t)
	s := storeOn(t, pool)
	if _, _, err := s.Grant(t.Context(), grant("x:k")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	end := locked(t, pool, `UPDATE holdfast_keys SET owner = NULL, version = 1`, func() {
		_, _, err := s.Grant(context.WithoutCancel(t.Context()), grant("x:k"))
		ended <- err
	})
	run(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	terminated := <-ended
	end()

	run(t, pool, `DROP TABLE holdfast_keys`)
	_, missing := s.Read(t.Context(), []string{"x:k"})
	missingToo := s.Write(t.Context(), []rows.Write{{Name: "x:k", Read: time.Now().UnixMicro()}})[0]

	far := storeOn(t, connect(t, "host=/nonexistent user=postgres"))
	_, _, refused := far.Grant(t.Context(), grant("x:k"))
	closed := storeOn(t, pool)
	closed.Close()
	_, over := closed.Read(t.Context(), []string{"x:k"})
	login := storeOn(t, connect(t, strings.Replace(pool.Config().ConnString(), "dbname=", "dbname=no", 1)))
	_, nowhere := login.Read(t.Context(), []string{"x:k"})
	for _, e := range []struct {
		what           string
		err            error
		permanent, may bool
	}{
		{"terminated", terminated, false, true},
		{"no table to read", missing, true, false},
		{"no table to write", missingToo, true, false},
		{"no server", refused, false, false},
		{"no database", nowhere, true, false},
		{"closed", over, false, false},
		{"not acknowledged", &backend.AcksError{}, false, true},
	} {
		if e.err == nil || s.Permanent(e.err) != e.permanent || s.MayTakeEffect(e.err) != e.may {
			t.Errorf("%s: error %v, permanent %t, may take effect %t", e.what, e.err, s.Permanent(e.err), s.MayTakeEffect(e.err))
		}
	}
}

// The float64 of date_part has each µs until the year 2100.
func TestMicroseconds(t *testing.T) {
	var all, equal int
	err := database(t).QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE (date_part('epoch', t) * 1000000)::bigint = (extract(epoch FROM t) * 1000000)::numeric::bigint)
FROM (SELECT timestamptz '2026-01-01' + n * interval '23 hours 59 minutes 1.234567 seconds' AS t FROM generate_series(1, 27000) AS n) AS s`).Scan(&all, &equal)
	if err != nil || all != 27_000 || equal != all {
		t.Errorf("%d of %d times are equal: %v", equal, all, err)
	}
}
