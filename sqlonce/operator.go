package sqlonce

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/idempotency"
)

// Status is the row of a key.
type Status struct {
	// Done is true if the row has a record. It is false without a row.
	Done bool
	// At is the time when the row was inserted, in PostgreSQL the time when its transaction began,
	// by the clock of the database. It is zero without a row.
	At time.Time
	// Content is the content of the record. It is zero unless Done is true.
	Content idempotency.Content
}

// Lookup returns the row of key that is visible to tx. The row of a transaction that has not
// committed is not visible. If the record does not decode, the error wraps [idempotency.ErrFormat].
func Lookup(ctx context.Context, tx Tx, key string) (Status, error) {
	if err := check(tx, key, Options{}); err != nil {
		return Status{}, err
	}
	var record []byte
	var at int64
	err := tx.queryRow(ctx, statementsOf[tx.dialect].lookup, []byte(key)).Scan(&record, &at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Status{}, nil
	case err != nil:
		return Status{}, err
	}
	s := Status{At: time.UnixMicro(at)}
	if record == nil {
		return s, nil
	}
	if s.Content, err = idempotency.Decode(record); err != nil {
		return Status{At: s.At}, err
	}
	s.Done = true
	return s, nil
}

// Clear deletes the row of key, so that the key runs again. It reports whether the row existed. If
// another transaction holds the key, Clear waits until it has ended. In PostgreSQL Clear inserts
// the row first, because a DELETE does not wait for a row that is not committed. It needs the
// rights SELECT, DELETE and INSERT. Do not call it in the function of the same key.
func Clear(ctx context.Context, tx Tx, key string) (existed bool, err error) {
	if err := check(tx, key, Options{}); err != nil {
		return false, err
	}
	s := statementsOf[tx.dialect]
	for range maxClaims {
		inserted := false
		if tx.dialect == fence.Postgres {
			run := make([]byte, 16)
			_, _ = rand.Read(run)
			rows, err := tx.exec(ctx, s.claim, []byte(key), run, []byte{}, nil)
			if err != nil {
				return false, err
			}
			inserted = rows == 1
		}
		rows, err := tx.exec(ctx, s.clear, []byte(key))
		if err != nil {
			return false, err
		}
		// No row was deleted: another transaction has deleted it after the INSERT found it.
		if rows > 0 || tx.dialect != fence.Postgres {
			return rows > 0 && !inserted, nil
		}
	}
	return false, fmt.Errorf("sqlonce: Clear: the row of key %q was deleted %d times meanwhile", key, maxClaims)
}

// Purge deletes at most limit rows whose Status.At is more than older ago, the oldest first. It
// returns the number of deleted rows. Call it in one transaction for each batch, until it returns
// 0. A purged key runs again, so older must exceed the time within which the same work may arrive
// again. older is 1 s to 100 years, limit 1 to 100,000. PostgreSQL, MySQL 8 and MariaDB 10.6 skip
// rows that another transaction has locked. Purge needs the rights SELECT and DELETE, in PostgreSQL
// also UPDATE.
//
// Begin the transaction with sql.LevelReadCommitted. At REPEATABLE READ, which is the default of
// MySQL and MariaDB, and at SERIALIZABLE calls for new keys wait until the transaction of Purge has
// ended.
func Purge(ctx context.Context, tx Tx, older time.Duration, limit int) (purged int64, err error) {
	switch {
	case tx.exec == nil:
		return 0, errNoTx
	case older < time.Second || older > maxOlder:
		return 0, fmt.Errorf("sqlonce: Purge: older is %v, must be between 1s and %v", older, maxOlder)
	case limit < 1 || limit > maxPurge:
		return 0, fmt.Errorf("sqlonce: Purge: limit is %d, must be between 1 and %d", limit, maxPurge)
	}
	return tx.exec(ctx, statementsOf[tx.dialect].purge, older.Microseconds(), limit)
}

const (
	maxOlder = 100 * 365 * 24 * time.Hour
	maxPurge = 100_000
)
