package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed is the error of commands, withdrawals and releases that were not confirmed before
	// Close.
	ErrClosed = errors.New("lockcore: locker closed")
	// ErrUnsupported is the error of an operation that the backend does not have. Its text names the
	// operation and what to use instead.
	ErrUnsupported = errors.New("lockcore: unsupported")
	// ErrTooLate means that a release could not be sent while it was useful.
	ErrTooLate = errors.New("no command could be sent in time")
	// ErrHeldUp means that too many commands are still running after their callers have returned.
	// It is permanent for the call that gets it, but not for work that is retried asynchronously.
	ErrHeldUp = errors.New("too many commands are still running after their callers returned")
)

// DataError means that the data of a key was not written by a backend. A repeat fails with the same
// error.
type DataError struct {
	Stored string // name of the key in the backend
	Field  string // of its hash; empty: a stored key has another type, or is a string that no backend wrote
	Row    bool   // Stored is the name of a row, not of a key in Redis
	Reply  error
}

func (e *DataError) Error() string {
	if e.Row {
		return fmt.Sprintf("stored data does not decode: row %q: %v; Clear repairs the key", e.Stored, e.Reply)
	}
	if e.Field == "" {
		return fmt.Sprintf("stored data does not decode: Redis key %[1]q must be a hash or a string that holdfast wrote, and %[1]q with the suffix :q, :p, :w or :s must be a sorted set; delete the key of another type: %[2]v", e.Stored, e.Reply)
	}
	return fmt.Sprintf("stored data does not decode: field %q of the hash %q must be a number from 0 to 9e15; Clear repairs the key", e.Field, e.Stored)
}

func (e *DataError) Unwrap() error { return e.Reply }

// AcksError means that the command took effect, but too few replicas acknowledged it in time.
type AcksError struct {
	Acked, Wanted int
	Reason        string // why the number is unknown; empty: it is known
}

func (e *AcksError) Error() string {
	s := fmt.Sprintf("%d of %d replicas acknowledged", e.Acked, e.Wanted)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Ended reports whether ctx has ended. It also compares the deadline with the clock, because the
// timer of ctx may fire a moment after the deadline.
func Ended(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
