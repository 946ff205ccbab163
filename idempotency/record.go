package idempotency

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	// DefaultMaxResult is the default bound of an encoded result in bytes: 256 KiB. A key with a
	// larger result is done without it.
	DefaultMaxResult = 256 << 10
	maxRecord        = 64 << 20
	maxCodecName     = 32
	maxFingerprint   = access.MaxFingerprint
	version1         = 1
	version2         = 2 // with a fingerprint
)

// Ending is how a recorded run ended.
type Ending byte

// The endings of a recorded run.
const (
	Done    Ending = 1 // with a result
	Failed  Ending = 2 // with an error that is final; Data is its text
	NotKept Ending = 3 // done; the result was too large or could not be encoded, and is not stored
)

// String returns the ending in one or two words.
func (e Ending) String() string {
	switch e {
	case Done:
		return "done"
	case Failed:
		return "failed"
	case NotKept:
		return "not kept"
	default:
		return fmt.Sprintf("ending %d", byte(e))
	}
}

// Content is the content of the record of a done key. lockcore.Record contains its encoded form.
type Content struct {
	Ending Ending
	Codec  string // name of the codec that wrote Data; empty unless Ending is Done
	Data   []byte // empty if Ending is NotKept
	// Fingerprint is the fingerprint of the run, at most 64 bytes. It is empty unless the run had
	// guard.OnceOptions.ReportOnly.
	Fingerprint []byte
}

// ErrFormat is the error for bytes that are not a record, or a record of a version that this
// release does not know.
var ErrFormat = errors.New("idempotency: bad record")

// Encode returns the bytes of r. Version 1 has no fingerprint, and version 2 has one:
//
//	1 byte 1 · 1 byte ending · 1 byte n · n bytes codec name · uvarint m · m bytes data
//	1 byte 2 · 1 byte ending · 1 byte n · n bytes codec name · 1 byte f · f bytes fingerprint · uvarint m · m bytes data
//
// It returns an error if Validate does.
func (r Content) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4+len(r.Codec)+len(r.Fingerprint)+binary.MaxVarintLen32+len(r.Data))
	b = append(b, version1, byte(r.Ending), byte(len(r.Codec)))
	b = append(b, r.Codec...)
	if len(r.Fingerprint) > 0 {
		b[0] = version2
		b = append(append(b, byte(len(r.Fingerprint))), r.Fingerprint...)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Data)))
	return append(b, r.Data...), nil
}

// Decode reads what Encode wrote. It returns ErrFormat for anything else. The record's Data and
// Fingerprint point into b.
func Decode(b []byte) (Content, error) {
	if len(b) < 4 {
		return Content{}, fmt.Errorf("%w: %d bytes", ErrFormat, len(b))
	}
	if b[0] != version1 && b[0] != version2 { //planted:record-version
		return Content{}, fmt.Errorf("%w: version %d", ErrFormat, b[0])
	}
	n := int(b[2])
	if n > maxCodecName || len(b) < 3+n+1 {
		return Content{}, fmt.Errorf("%w: codec name of %d bytes in %d", ErrFormat, n, len(b))
	}
	r := Content{Ending: Ending(b[1]), Codec: string(b[3 : 3+n])}
	rest := b[3+n:]
	if b[0] == version2 {
		f := int(rest[0])
		if f == 0 || f > maxFingerprint || len(rest) < 1+f {
			return Content{}, fmt.Errorf("%w: fingerprint of %d bytes in %d", ErrFormat, f, len(rest))
		}
		r.Fingerprint, rest = rest[1:1+f:1+f], rest[1+f:]
	}
	m, used := binary.Uvarint(rest)
	if used <= 0 || uint64(len(rest)-used) != m {
		return Content{}, fmt.Errorf("%w: data length does not fit", ErrFormat)
	}
	if used > 1 && rest[used-1] == 0 {
		return Content{}, fmt.Errorf("%w: data length is not in its shortest form", ErrFormat)
	}
	r.Data = rest[used:len(rest):len(rest)] // an append to Data must not write into the memory after b
	if err := r.Validate(); err != nil {
		return Content{}, errtext.Wrap(ErrFormat, err)
	}
	return r, nil
}

// Validate returns the first reason why r cannot be encoded, or nil. It does not allocate if it
// returns nil.
func (r Content) Validate() error {
	switch r.Ending {
	case Done:
		if r.Codec == "" || len(r.Codec) > maxCodecName {
			return fmt.Errorf("idempotency: codec name is %d bytes long, must be 1 to %d", len(r.Codec), maxCodecName)
		}
	case Failed, NotKept:
		if r.Codec != "" {
			return fmt.Errorf("idempotency: ending %d has codec %q, must have none", r.Ending, r.Codec)
		}
	default:
		return fmt.Errorf("idempotency: ending %d is unknown", r.Ending)
	}
	for i := range len(r.Codec) {
		if r.Codec[i] < ' ' || r.Codec[i] > '~' {
			return fmt.Errorf("idempotency: codec name %q is not printable ASCII", r.Codec)
		}
	}
	if len(r.Fingerprint) > maxFingerprint {
		return fmt.Errorf("idempotency: fingerprint is %d bytes long, must be at most %d", len(r.Fingerprint), maxFingerprint)
	}
	if r.Ending == NotKept && len(r.Data) > 0 {
		return fmt.Errorf("idempotency: ending %d has %d bytes of data, must have none", r.Ending, len(r.Data))
	}
	if len(r.Data) > maxRecord {
		return fmt.Errorf("idempotency: data is %d bytes long, must be at most %d", len(r.Data), maxRecord)
	}
	return nil
}

// Value decodes the result of the run into v, a pointer to a zero value. c is the codec that
// encoded it. Value returns an error if the run failed, or if its result was not stored. It also
// returns one if the record names another codec, or if c fails or panics. Do not use v after an
// error.
func (r Content) Value(c Codec, v any) (err error) {
	if r.Ending != Done {
		return fmt.Errorf("idempotency: record has no value: its ending is %v", r.Ending)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotency: codec %q panicked: %v", r.Codec, p)
		}
	}()
	if name := c.Name(); r.Codec != name {
		return fmt.Errorf("idempotency: record of codec %q, want %q", r.Codec, name)
	}
	if err := c.Decode(r.Data, v); err != nil {
		return errtext.Prefix("idempotency: decode value", err)
	}
	return nil
}

// Failure returns the recorded error text of a failed run, or "" if the run did not fail.
func (r Content) Failure() string {
	if r.Ending != Failed {
		return ""
	}
	return string(r.Data)
}
