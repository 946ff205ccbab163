// Package idempotency defines what a done key remembers: the [Content] of the record that
// guard.Once stores, its codecs, and the digests that make keys and fingerprints. With [Lookup] and
// [Clear] an operator finds out how a key ended, and lets it run again.
//
// The format of a record is versioned and strict: an extra byte, a wrong length or an unknown
// version is an error. Only Lookup and Clear send commands to Redis. Package lockcore stores a
// record as opaque bytes.
package idempotency

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	// DefaultMaxResult bounds the encoded result of one record: 256 KiB. Above it a tombstone is stored.
	DefaultMaxResult = 256 << 10
	maxRecord        = 64 << 20
	maxCodecName     = 32
	maxFingerprint   = lockcore.MaxFingerprint
	version1         = 1
	version2         = 2 // with a fingerprint
)

// Ending is how a recorded run ended.
type Ending byte

// The endings of a recorded run.
const (
	Done      Ending = 1 // with a result
	Failed    Ending = 2 // with an error that is final; Data is its text
	Tombstone Ending = 3 // done, but the result was too large to keep or did not encode
)

// String returns the ending in one word.
func (e Ending) String() string {
	switch e {
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Tombstone:
		return "tombstone"
	default:
		return fmt.Sprintf("ending %d", byte(e))
	}
}

// Content is what the record of a done key says. lockcore.Record is its encoded form.
type Content struct {
	Ending Ending
	Codec  string // name of the codec that wrote Data; empty unless Ending is Done
	Data   []byte // empty if Ending is Tombstone
	// Fingerprint of the run's payload, at most 64 bytes. It is empty unless a difference is only reported
	// (guard.OnceOptions.ReportOnly).
	Fingerprint []byte
}

// ErrFormat is the error for bytes that are not a record of a version that this release knows.
var ErrFormat = errors.New("idempotency: bad record")

// Encode returns the bytes of r, in version 1 without and in version 2 with a fingerprint:
//
//	1 byte 1 · 1 byte ending · 1 byte n · n bytes codec name · uvarint m · m bytes data
//	1 byte 2 · 1 byte ending · 1 byte n · n bytes codec name · 1 byte f · f bytes fingerprint · uvarint m · m bytes data
//
// What Decode would refuse is an error.
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
	r.Data = rest[used:len(rest):len(rest)] // who appends to it does not write behind b
	if err := r.Validate(); err != nil {
		return Content{}, errtext.Wrap(ErrFormat, err)
	}
	return r, nil
}

// Validate returns the first reason for which Encode refuses r. It does not allocate if there is
// none.
func (r Content) Validate() error {
	switch r.Ending {
	case Done:
		if r.Codec == "" || len(r.Codec) > maxCodecName {
			return fmt.Errorf("idempotency: codec name is %d bytes long, must be 1 to %d", len(r.Codec), maxCodecName)
		}
	case Failed, Tombstone:
		if r.Codec != "" {
			return fmt.Errorf("idempotency: ending %d with codec %q", r.Ending, r.Codec)
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
	if r.Ending == Tombstone && len(r.Data) > 0 {
		return fmt.Errorf("idempotency: a tombstone with %d bytes of data", len(r.Data))
	}
	if len(r.Data) > maxRecord {
		return fmt.Errorf("idempotency: data is %d bytes long, at most %d", len(r.Data), maxRecord)
	}
	return nil
}

// Value decodes what the run returned into v, a pointer to a zero value; c must be the codec that wrote it. It is an error if the
// run failed or its result was not kept, and if c panics. After an error do not use v.
func (r Content) Value(c Codec, v any) (err error) {
	if r.Ending != Done {
		return fmt.Errorf("idempotency: a record without a value: %v", r.Ending)
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

// Failure is the text of the error that a failed run ended with, and empty for a run that did not fail.
func (r Content) Failure() string {
	if r.Ending != Failed {
		return ""
	}
	return string(r.Data)
}
