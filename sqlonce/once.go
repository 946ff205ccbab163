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
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxKeyLen    = 512       // as in lockcore
	maxMaxResult = 8_000_000 // escaped, which may double it, it fits the 16 MiB of MariaDB's max_allowed_packet
	maxClaims    = 10        // attempts to insert or find the row, which Clear or Purge may delete in between
	removalTime  = time.Second
)

// Options are the conditions of a call. The zero value is safe.
type Options struct {
	// Fingerprint stands for the payload, at most 64 bytes, see [idempotency.Fingerprint]. The same
	// key with another fingerprint is refused with a *lockcore.MismatchError. Empty: not compared.
	Fingerprint []byte
	// Codec encodes the result of DoValue. Default: [idempotency.JSON].
	Codec idempotency.Codec
	// MaxResult bounds the encoded result in bytes. Default 256 KiB, at most 8,000,000. A larger result
	// leaves a tombstone: the key is done, and a replay returns guard.ErrNoResult. In MySQL and MariaDB
	// max_allowed_packet of server and driver must exceed twice MaxResult by 64 KiB. The default of
	// MariaDB is 16 MiB.
	MaxResult int
}

// Validate returns every problem of o. Each names the field, its value and the bound.
func (o Options) Validate() error {
	var errs []error
	if len(o.Fingerprint) > lockcore.MaxFingerprint {
		errs = append(errs, fmt.Errorf("sqlonce: Options.Fingerprint is %d bytes long, must be at most %d", len(o.Fingerprint), lockcore.MaxFingerprint))
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

// Do runs fn unless the key is done, and makes the key done with the commit of tx. It is [DoValue]
// without a value, and costs one statement (MySQL and MariaDB: two). The record is part of the first
// statement, so Do does not notice if fn ends the transaction or deletes the row.
//
// If fn fails, Do removes the record, for which it has one second more than ctx. If that fails in a
// transaction that may still be committed, the error of the statement follows that of fn.
func Do(ctx context.Context, tx Tx, key string, o Options, fn func(context.Context) error) (guard.Outcome, error) {
	if fn == nil {
		return guard.NotRun, errNoFunc
	}
	r, err := do(ctx, tx, key, o, false, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
	return r.Outcome, err
}

// DoValue runs fn unless the key is done, and returns what fn returned or what was recorded. fn must
// make its effect in the transaction tx. Call DoValue before any other statement of tx. It costs two
// statements (MySQL and MariaDB: three), a replay two.
//
//	fn returns nil            Outcome Ran: commit tx
//	fn returns an error       that error: roll tx back, and the next call runs
//	fn panics                 the panic passes on: roll tx back
//	the key is done           Outcome Replayed and the value: fn did not run
//	its result was not kept   Outcome Replayed and guard.ErrNoResult
//	another fingerprint       a *lockcore.MismatchError
//	a transaction was         an error that wraps a *lockcore.AbandonedError: the effect may be there or
//	committed after an error  not. Check the effect, then call [Clear] or record it by hand
//	fn calls DoValue or Do    the inner call returns an error. Nesting is found through ctx, by key and
//	with the same key         dialect. A second database of the same dialect needs another key
//	the record does not       an error that wraps lockcore.ErrRecord
//	decode
//	the result does not       Outcome Ran, the value and the error of the codec. A tombstone is recorded:
//	encode                    commit or roll back
//	an error of the driver    that error, unchanged: roll tx back. The package documentation says which
//	                          of them allow you to run the whole transaction again
//
// If fn did not run, every error except guard.ErrNoResult and those of the driver satisfies
// errors.Is(err, lockcore.ErrNotRun). The marks guard.Final, guard.NoEffect and guard.Unknown have no meaning here, because no
// error is recorded. Return a refusal that must be remembered as a value.
func DoValue[T any](ctx context.Context, tx Tx, key string, o Options, fn func(context.Context) (T, error)) (guard.Result[T], error) {
	if fn == nil {
		return guard.Result[T]{}, errNoFunc
	}
	return do(ctx, tx, key, o, true, fn)
}

var (
	errNoFunc = notRun(errors.New("sqlonce: fn must not be nil"))
	errNoTx   = errors.New("sqlonce: tx must be made by Postgres, Pgx, MySQL or SQLite, of a transaction that is not nil")
)

// notRun returns an error that wraps lockcore.ErrNotRun and err.
func notRun(err error) error { return errtext.Prefix("sqlonce", errtext.Wrap(lockcore.ErrNotRun, err)) }

// do runs fn. valued is false for Do, whose finished record is part of the first statement.
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
	res.Outcome = guard.Ran
	returned := false
	if !valued {
		// The record says done. If fn fails and tx is committed all the same, the row must not say so.
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
	record, tombstone, encErr := encode(o, res.Value)
	res.Tombstone = tombstone
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

// running is a call of do that ctx carries. Its key cannot be claimed again: in the same transaction
// the row is already there, and in another one the claim would wait for its own caller.
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

// removeRecord sets the record of the row to NULL. It has one second more than ctx.
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

// ended reports whether err says that the transaction has ended or cannot be committed. Then it has
// no row.
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

// doneRecord is the record of Do, the same as that of guard.Once.
//
//nolint:gochecknoglobals // constant
var doneRecord, _ = idempotency.Content{Ending: idempotency.Done, Codec: "none"}.Encode()

// replay fills res with what the row of another call records.
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
	case rec.Ending == idempotency.Tombstone:
		res.Tombstone = true
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

// encode returns the record of a result. The work is done, so a result that cannot be kept leaves a
// tombstone.
func encode(o Options, v any) (record []byte, tombstone bool, err error) {
	data, err := encodeValue(o.Codec, v)
	if err == nil && len(data) <= o.MaxResult {
		if record, err = (idempotency.Content{Ending: idempotency.Done, Codec: o.Codec.Name(), Data: data}).Encode(); err == nil {
			return record, false, nil
		}
	}
	if err != nil {
		err = errtext.Prefix("sqlonce: encode the result", err)
	}
	record, _ = idempotency.Content{Ending: idempotency.Tombstone}.Encode()
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

// abandonedError is the error for a row without a record. It wraps a *lockcore.AbandonedError, whose
// own text does not fit: a row knows no holder and no attempt.
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
