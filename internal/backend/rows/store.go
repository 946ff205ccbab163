package rows

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// Seam1 changes its name with each change of what a module with a Store uses of this one. So different
// versions of the two modules do not compile.
const Seam1 = true

// ErrConflict is the error of a Write whose row another client has changed, or which came too late.
var ErrConflict = errors.New("the row was changed by another client")

const (
	// WriteTime is how long after its Read a Write may take effect, in µs of the clock of the store.
	WriteTime = rules.Span(1_000_000)
	// MaxBatch is the maximum number of rows of one Read or Write.
	MaxBatch = 100
	// NamesPerPage is the maximum number of names that Names and Due return.
	NamesPerPage = 500
	// Hour is the unit of Row.Due, in µs.
	Hour = rules.Span(3_600_000_000)
)

// Store stores rows by name. Its methods are safe for concurrent use and return when ctx ends. A
// statement that got no reply may still take effect.
//
// Times are in µs of the clock of the store. Each statement commits by itself. A durable statement
// survives a crash of the store when it has returned. A durable statement also makes all earlier
// statements durable.
type Store interface {
	// Read returns the rows with these names, in their order, and the time of each. A row that does
	// not exist has Version 0.
	Read(ctx context.Context, names []string) ([]Row, error)
	// Write writes rows independently of each other, each only if the row has Version Was (0: if it
	// does not exist), and if at most WriteTime has passed since the time Read. Otherwise its error is
	// ErrConflict.
	Write(ctx context.Context, ws []Write) []error

	// Grant writes a plain hold if the row does not exist, or has neither an Owner nor Data. The token
	// is greater than that of the row, and not less than the time.
	Grant(ctx context.Context, g Grant) (token int64, granted bool, err error)
	// Free ends the plain hold of owner, and reports whether there was one that has not expired. The row keeps the greater
	// of its token and token.
	Free(ctx context.Context, name, owner string, token int64) (freed bool, err error)
	// Finish replaces the plain hold of owner by data, which expires after keep, and reports whether
	// there was one that has not expired. The row keeps Holder, Fingerprint and Token.
	Finish(ctx context.Context, name, owner string, data []byte, keep rules.Span) (finished bool, err error)

	// Names returns the next names after a name, sorted, at most NamesPerPage. None is left if it
	// returns none.
	Names(ctx context.Context, after string) ([]string, error)
	// Due is Names for the rows that Purge must look at: those whose Due has begun.
	Due(ctx context.Context, after string) ([]string, error)

	// Notify sends notifications. The notified processes may not get them.
	Notify(ctx context.Context, notices []rules.Notice) error
	// Listen passes the notifications for a Locker to on, see backend.Backend.Listen. Meanwhile the Locker
	// is one of Listening.
	Listen(ctx context.Context, locker string, on func(backend.Notification))

	// Listening returns the Lockers that listen, and how often each of them does.
	Listening(ctx context.Context) (map[string]int, error)

	// Permanent reports whether a repeat would fail with the same error.
	Permanent(err error) bool
	// MayTakeEffect reports whether a statement with this error may have had its effect, or may still
	// have it.
	MayTakeEffect(err error) bool
	// Close ends the statements in flight.
	Close()
}

// Row is a row. It has one of three forms: a plain hold has an Owner, any other key with data has
// Data, and a free key has only a Token.
//
// Data is the encoded key. That of a plain record does not contain its Holder, Fingerprint, Token and
// Expires, which are those of the row, so that Finish need not know them.
type Row struct {
	Version                            int64 // another one after each write
	Owner, Locker, Holder, Fingerprint string
	End, Length, Expires               int64
	Token                              int64 // of a plain hold or record: its first token; otherwise the greatest that may have been used
	Due                                int64 // the hour from which Purge looks at the row, since 1970; a write never makes it smaller
	Data                               []byte

	Now rules.Instant // only of Read
}

// Write is a write of a row.
type Write struct {
	Name    string
	Was     int64         // Version of the row that was read
	Read    rules.Instant // when it was read
	Row     Row
	Delete  bool // delete the row instead
	Durable bool
}

// Grant is a plain hold to be granted.
type Grant struct {
	Name                               string
	Owner, Locker, Holder, Fingerprint string
	Lease, Retention                   rules.Span
}
