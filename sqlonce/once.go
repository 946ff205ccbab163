package sqlonce

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/roundtrip"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxKeyLen    = 512       // the limit of lockcore
	maxMaxResult = 8_000_000 // escaping may double it, then it fits the 16 MiB of MariaDB's max_allowed_packet
	maxClaims    = 10        // attempts to insert or find the row: Clear or Purge may delete it meanwhile
	removalTime  = time.Second
)

// Options are the options of [Do] and [DoValue]. The zero value is ready to use.
type Options struct {
	// Fingerprint stands for the payload, see [idempotency.Fingerprint]. A call for a key with
	// another fingerprint fails with a *lockcore.MismatchError. At most 64 bytes. Default:
	// fingerprints are not compared.
	Fingerprint []byte
	// Codec encodes the result of DoValue. Default: [idempotency.JSON].
	Codec idempotency.Codec
	// MaxResult bounds the encoded result in bytes. With a larger one the key is done without its
	// result, and a replay returns guard.ErrNoResult. In MySQL and MariaDB max_allowed_packet of
	// server and driver must exceed twice MaxResult by 64 KiB. MariaDB has 16 MiB by default.
	// Default: 256 KiB. At most 8,000,000.
	MaxResult int
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o Options) Validate() error {
	var errs []error
	if len(o.Fingerprint) > access.MaxFingerprint {
		errs = append(errs, fmt.Errorf("sqlonce: Options.Fingerprint is %d bytes long, must be at most %d", len(o.Fingerprint), access.MaxFingerprint))
	}
	if o.Codec != nil {
		if err := (idempotency.Content{Ending: idempotency.Done, Codec: o.Codec.Name()}).Validate(); err != nil {
			errs = append(errs, errtext.Prefix("sqlonce: Options.Codec", err))
		}
	}
	if o.MaxResult < 0 || o.MaxResult > maxMaxResult {
		errs = append(errs, fmt.Errorf("sqlonce: Options.MaxResult is %d, must be between 0 and %d", o.MaxResult, maxMaxResult))
	}
	return errtext.Join(errs...)
}

// Do runs fn unless the key is done. The commit of tx makes the key done. Do is [DoValue] without a
// value, and costs one statement (MySQL and MariaDB: two). The first statement stores the record.
// So Do does not detect that fn has ended the transaction or deleted the row, as DoValue does:
//
//   - After error 1213 MySQL and MariaDB have rolled the transaction back, with the row. If fn
//     hides that error, Do returns Ran, and later statements of the transaction commit one by one.
//   - If fn calls Clear with its own key, Do returns Ran, and the key runs again.
//
// If fn fails, Do removes the record. This may take until one second after the end of ctx. If the
// removal fails and the transaction may still be committed, the returned error wraps the errors
// of fn and of the statement.
func Do(ctx context.Context, tx Tx, key string, o Options, fn func(context.Context) error) (guard.Outcome, error) {
	if fn == nil {
		return guard.NotRun, errNoFunc
	}
	r, err := do(ctx, tx, key, o, false, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
	return r.Outcome, err
}

// DoValue runs fn unless the key is done, and returns the result of fn or the recorded one. fn must
// make its effect in the transaction tx. Call DoValue before any other statement of tx, because at
// REPEATABLE READ of MySQL an earlier read fixes what later reads return. It costs two statements
// (MySQL and MariaDB: three), a replay two. It needs the rights SELECT, INSERT and UPDATE on the
// table holdfast_once.
//
// Every isolation level works. A call waits for another transaction that holds the key until its
// ctx ends, or until the lock timeout of the database: lock_timeout in PostgreSQL (SQLSTATE 55P03),
// innodb_lock_wait_timeout in MySQL and MariaDB (50 s; error 1205), busy_timeout in SQLite. From
// REPEATABLE READ on, PostgreSQL ends a call that has waited with 40001, and the next try replays.
// If calls waited for a transaction that was rolled back, MySQL and MariaDB may end them with error
// 1213.
//
// If fn runs:
//
//   - fn returns nil: Outcome is Ran. Commit tx.
//   - fn returns an error: DoValue returns that error. Roll tx back. Then the next call runs.
//   - fn panics: the panic continues. Roll tx back.
//   - fn calls DoValue or Do with the same key: the inner call returns an error, because it would
//     wait for its own caller. Such a call is detected through ctx, by key and dialect. So pass the
//     ctx of fn on, and use another key for a second database of the same dialect.
//   - The result cannot be encoded, or a replay would not return it, see guard.OnceValue: Outcome
//     is Ran. DoValue returns the value and an error. Commit tx, and the key is done without its
//     result, or roll it back.
//
// If fn does not run:
//
//   - The key is done: Outcome is Replayed, and DoValue returns the recorded value.
//   - The key is done without a stored result: Outcome is Replayed, and the error is
//     guard.ErrNoResult.
//   - The row has another fingerprint: the error is a *lockcore.MismatchError.
//   - The row has no record, because its transaction was committed after an error: the error wraps
//     a *lockcore.AbandonedError. The effect may exist or not. Check that, then call [Clear], or
//     record the effect by hand.
//   - The record does not decode: the error wraps lockcore.ErrRecord.
//   - T shows that a replay would not return the result: the error names the field, see
//     guard.OnceValue.
//
// DoValue returns errors of the driver unchanged. Roll tx back. The package documentation lists the
// errors after which you can run the whole transaction again. If fn did not run, every other error
// except guard.ErrNoResult satisfies errors.Is(err, lockcore.ErrNotRun).
//
// The marks guard.Final, guard.NoEffect and guard.Unknown have no effect, because no error is
// recorded. Return a decision that must be remembered as a value.
func DoValue[T any](ctx context.Context, tx Tx, key string, o Options, fn func(context.Context) (T, error)) (guard.Result[T], error) {
	if fn == nil {
		return guard.Result[T]{}, errNoFunc
	}
	return do(ctx, tx, key, o, true, fn)
}

var (
	errNoFunc = notRun(errors.New("sqlonce: fn must not be nil"))
	errNoTx   = errors.New("sqlonce: tx must be made by Postgres, Pgx, MySQL or SQLite from a transaction that is not nil")
)

// notRun returns an error that wraps lockcore.ErrNotRun and err.
func notRun(err error) error { return errtext.Prefix("sqlonce", errtext.Wrap(lockcore.ErrNotRun, err)) }

// do is Do and DoValue. valued is false for Do, whose first statement stores the finished record.
func do[T any](ctx context.Context, tx Tx, key string, o Options, valued bool, fn func(context.Context) (T, error)) (res guard.Result[T], err error) {
	if err := check(tx, key, o); err != nil {
		return res, notRun(err)
	}
	for outer := runningIn(ctx); outer != nil; outer = outer.outer {
		if outer.key == key && outer.dialect == tx.dialect {
			return res, notRun(fmt.Errorf("sqlonce: the function of key %q calls Do or DoValue with the same key", key))
		}
	}
	if o.Codec == nil {
		o.Codec = idempotency.JSON()
	}
	if o.MaxResult == 0 {
		o.MaxResult = idempotency.DefaultMaxResult
	}
	c := &insertion{Tx: tx, statements: statementsOf[tx.dialect], key: []byte(key)}
	c.fingerprint = append([]byte{}, o.Fingerprint...) // not nil, because the column is NOT NULL
	_, _ = rand.Read(c.run[:])
	var record []byte
	if !valued {
		record = doneRecord
	}
	other, err := c.insert(ctx, record)
	if err != nil {
		return res, err
	}
	res.Attempt = 1
	if other != nil {
		res.Outcome = guard.Replayed
		err = replay(&res, key, other, o, valued)
		if err != nil && !errors.Is(err, guard.ErrNoResult) {
			return guard.Result[T]{}, err
		}
		return res, err
	}
	if valued {
		if err := roundtrip.Type[T](o.Codec); err != nil {
			return res, notRun(err)
		}
	}
	res.Outcome = guard.Ran
	returned := false
	if !valued {
		// The row has a finished record. If fn fails and tx is committed nevertheless, the row must
		// have no record.
		defer func() {
			if !returned || err != nil {
				if failed := c.removeRecord(ctx); failed != nil {
					err = errtext.Join(err, failed)
				}
			}
		}()
	}
	res.Value, err = fn(context.WithValue(ctx, runningKey{}, &running{key: key, dialect: tx.dialect, outer: runningIn(ctx)}))
	returned = true
	if err != nil || !valued {
		return res, err
	}
	record, notKept, encErr := encode(o, res.Value)
	res.NotKept = notKept
	rows, err := tx.exec(ctx, c.statements.record, record, c.key, c.run[:])
	switch {
	case err != nil:
		return res, err
	case rows != 1:
		return res, fmt.Errorf("sqlonce: the row of key %q was deleted in its transaction", key)
	}
	return res, encErr
}

func check(tx Tx, key string, o Options) error {
	switch {
	case tx.exec == nil:
		return errNoTx
	case key == "" || len(key) > maxKeyLen:
		return fmt.Errorf("%w: %d bytes long, must be between 1 and %d", lockcore.ErrKey, len(key), maxKeyLen)
	}
	return o.Validate()
}

// running is a call of do that ctx carries. Its key cannot be claimed again. In the same
// transaction the row exists. In another transaction the claim would wait for its own caller.
type running struct {
	key     string
	dialect fence.SQL
	outer   *running
}

type runningKey struct{}

func runningIn(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	return r
}

// removeRecord sets the record of the row to NULL. It ends at most a second after ctx.
func (c *insertion) removeRecord(ctx context.Context) error {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(removalTime, cancel) })()
	_, err := c.exec(longer, c.record, nil, c.key, c.run[:])
	if err == nil || ended(err) {
		return nil
	}
	return errtext.Prefix(fmt.Sprintf("sqlonce: the row of key %q still says done, roll back", c.key), err)
}

// ended reports whether err means that the transaction has ended or cannot be committed. Then no
// row remains.
func ended(err error) bool {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn) {
		return true
	}
	pg, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return ok && pg.SQLState() == "25P02" || err.Error() == "tx is closed" // pgx.ErrTxClosed
}

// insertion is the row of a call.
type insertion struct {
	Tx
	*statements
	key, fingerprint []byte
	run              [16]byte // random, to distinguish the row of this call from others
}

// otherRow is the row of another call.
type otherRow struct{ run, fingerprint, record []byte }

// insert inserts the row of the call, with record. If another transaction has inserted one, insert
// waits in the database until that has ended. other is the committed row of another call, or nil.
func (c *insertion) insert(ctx context.Context, record []byte) (other *otherRow, err error) {
	var arg any // an untyped nil is NULL for all drivers
	if record != nil {
		arg = record
	}
	for range maxClaims {
		rows, err := c.exec(ctx, c.claim, c.key, c.run[:], c.fingerprint, arg)
		switch {
		case err != nil:
			return nil, err
		case rows == 1 && c.dialect != fence.MySQL: // MySQL may count a row that was found
			return nil, nil
		}
		other = new(otherRow)
		err = c.queryRow(ctx, c.seen, c.key).Scan(&other.run, &other.fingerprint, &other.record)
		switch {
		case errors.Is(err, sql.ErrNoRows): // deleted since the claim
			continue
		case err != nil:
			return nil, err
		case bytes.Equal(other.run, c.run[:]):
			return nil, nil
		}
		return other, nil
	}
	return nil, notRun(fmt.Errorf("sqlonce: the row of key %q was deleted %d times meanwhile", c.key, maxClaims))
}

// doneRecord is the record of Do. guard.Once writes the same one.
//
//nolint:gochecknoglobals // constant
var doneRecord, _ = idempotency.Content{Ending: idempotency.Done, Codec: "none"}.Encode()

// replay fills res from the row of another call.
func replay[T any](res *guard.Result[T], key string, other *otherRow, o Options, valued bool) error {
	if len(other.fingerprint) > 0 && len(o.Fingerprint) > 0 && !bytes.Equal(other.fingerprint, o.Fingerprint) {
		return &lockcore.MismatchError{Key: key, Done: other.record != nil}
	}
	if other.record == nil {
		return &abandonedError{lockcore.AbandonedError{Key: key}}
	}
	rec, err := idempotency.Decode(other.record)
	if err == nil && rec.Ending == idempotency.Failed {
		err = fmt.Errorf("%w: this package records no failure", idempotency.ErrFormat)
	}
	switch {
	case err != nil:
	case rec.Ending == idempotency.NotKept:
		res.NotKept = true
		if valued {
			return guard.ErrNoResult
		}
	case valued:
		err = rec.Value(o.Codec, &res.Value)
	}
	if err != nil {
		return errtext.Wrap(lockcore.ErrRecord, errtext.Prefix(fmt.Sprintf("sqlonce: record of key %q", key), err))
	}
	return nil
}

// encode returns the record of a result. If the result is too large or cannot be encoded, the key is
// done without it, because fn has succeeded.
func encode[T any](o Options, v T) (record []byte, notKept bool, err error) {
	data, err := encodeValue(o.Codec, v)
	if err == nil && len(data) <= o.MaxResult {
		err = roundtrip.Value(o.Codec, v, data)
	}
	if err == nil && len(data) <= o.MaxResult {
		if record, err = (idempotency.Content{Ending: idempotency.Done, Codec: o.Codec.Name(), Data: data}).Encode(); err == nil {
			return record, false, nil
		}
	}
	if err != nil {
		err = errtext.Prefix("sqlonce: encode the result", err)
	}
	record, _ = idempotency.Content{Ending: idempotency.NotKept}.Encode()
	return record, true, err
}

func encodeValue(c idempotency.Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec %q panicked: %v", c.Name(), p)
		}
	}()
	return c.Encode(v)
}

// abandonedError is the error for a row without a record. It wraps a *lockcore.AbandonedError, but
// has another text, because a row has no holder and no attempt.
type abandonedError struct{ cause lockcore.AbandonedError }

func (e *abandonedError) Error() string {
	return fmt.Sprintf("sqlonce: the row of key %q has no record: its transaction was committed after an error, "+
		"or Do or DoValue of the key runs in this transaction; Clear lets it run again", e.cause.Key)
}

// Unwrap returns a *lockcore.AbandonedError, which matches lockcore.ErrAbandoned and
// lockcore.ErrNotRun.
func (e *abandonedError) Unwrap() error { return &e.cause }

// ErrorType names the class for telemetry.
func (e *abandonedError) ErrorType() string { return e.cause.ErrorType() }
