// Package idempotency is what a done key remembers: the record that guard.Once stores, its codecs, and the digests that
// tell one payload and one key from another. [Lookup] and [Clear] are for whoever has to find out what became of a key.
//
// A record is versioned and strict: a byte too many, a length that does not fit or an unknown version is an error,
// never a guess. Only Lookup and Clear talk to Redis, through package lockcore, which stores records as opaque bytes.
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

// State says how the run ended that a record stands for.
type State byte

// The states of a record.
const (
	Done      State = 1 // with a result
	Failed    State = 2 // with an error that is final; Data is its text
	Tombstone State = 3 // done, but the result was too large to keep or did not encode
)

// String is the state in a word.
func (s State) String() string {
	switch s {
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Tombstone:
		return "tombstone"
	default:
		return fmt.Sprintf("state %d", byte(s))
	}
}

// Record is what a done key remembers.
type Record struct {
	State State
	Codec string // name of the codec that wrote Data; empty unless State is Done
	Data  []byte // empty if State is Tombstone
	// Fingerprint of the run's payload, at most 64 bytes. It is empty unless a difference is only reported
	// (guard.OnceOptions.ReportOnly).
	Fingerprint []byte
}

// ErrRecord: the bytes are not a record of a version that this release knows.
var ErrRecord = errors.New("idempotency: bad record")

// Encode returns the bytes of r, in version 1 without and in version 2 with a fingerprint:
//
//	1 byte 1 · 1 byte state · 1 byte n · n bytes codec name · uvarint m · m bytes data
//	1 byte 2 · 1 byte state · 1 byte n · n bytes codec name · 1 byte f · f bytes fingerprint · uvarint m · m bytes data
//
// What Decode would refuse is an error.
func (r Record) Encode() ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("idempotency: %w", err)
	}
	b := make([]byte, 0, 4+len(r.Codec)+len(r.Fingerprint)+binary.MaxVarintLen32+len(r.Data))
	b = append(b, version1, byte(r.State), byte(len(r.Codec)))
	b = append(b, r.Codec...)
	if len(r.Fingerprint) > 0 {
		b[0] = version2
		b = append(append(b, byte(len(r.Fingerprint))), r.Fingerprint...)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Data)))
	return append(b, r.Data...), nil
}

// Decode reads what Encode wrote. It returns ErrRecord for anything else. The record's Data and Fingerprint point into
// b.
func Decode(b []byte) (Record, error) {
	if len(b) < 4 {
		return Record{}, fmt.Errorf("%w: %d bytes", ErrRecord, len(b))
	}
	if b[0] != version1 && b[0] != version2 { //planted:record-version
		return Record{}, fmt.Errorf("%w: version %d", ErrRecord, b[0])
	}
	n := int(b[2])
	if n > maxCodecName || len(b) < 3+n+1 {
		return Record{}, fmt.Errorf("%w: codec name of %d bytes in %d", ErrRecord, n, len(b))
	}
	r := Record{State: State(b[1]), Codec: string(b[3 : 3+n])}
	rest := b[3+n:]
	if b[0] == version2 {
		f := int(rest[0])
		if f == 0 || f > maxFingerprint || len(rest) < 1+f {
			return Record{}, fmt.Errorf("%w: fingerprint of %d bytes in %d", ErrRecord, f, len(rest))
		}
		r.Fingerprint, rest = rest[1:1+f:1+f], rest[1+f:]
	}
	m, used := binary.Uvarint(rest)
	if used <= 0 || uint64(len(rest)-used) != m {
		return Record{}, fmt.Errorf("%w: data length does not fit", ErrRecord)
	}
	if used > 1 && rest[used-1] == 0 {
		return Record{}, fmt.Errorf("%w: data length is not in its shortest form", ErrRecord)
	}
	r.Data = rest[used:len(rest):len(rest)] // who appends to it does not write behind b
	if err := r.validate(); err != nil {
		return Record{}, errtext.Wrap(ErrRecord, err)
	}
	return r, nil
}

// validate is what a record must be to be written, and to be read.
func (r Record) validate() error {
	switch r.State {
	case Done:
		if r.Codec == "" || len(r.Codec) > maxCodecName {
			return fmt.Errorf("codec name is %d bytes long, must be 1 to %d", len(r.Codec), maxCodecName)
		}
	case Failed, Tombstone:
		if r.Codec != "" {
			return fmt.Errorf("state %d with codec %q", r.State, r.Codec)
		}
	default:
		return fmt.Errorf("state %d is unknown", r.State)
	}
	for i := range len(r.Codec) {
		if r.Codec[i] < ' ' || r.Codec[i] > '~' {
			return fmt.Errorf("codec name %q is not printable ASCII", r.Codec)
		}
	}
	if len(r.Fingerprint) > maxFingerprint {
		return fmt.Errorf("fingerprint is %d bytes long, must be at most %d", len(r.Fingerprint), maxFingerprint)
	}
	if r.State == Tombstone && len(r.Data) > 0 {
		return fmt.Errorf("a tombstone with %d bytes of data", len(r.Data))
	}
	if len(r.Data) > maxRecord {
		return fmt.Errorf("data is %d bytes long, at most %d", len(r.Data), maxRecord)
	}
	return nil
}

// Value decodes what the run returned into v, a pointer to a zero value; c must be the codec that wrote it. It is an error if the
// run failed or its result was not kept, and if c panics. After an error do not use v.
func (r Record) Value(c Codec, v any) (err error) {
	if r.State != Done {
		return fmt.Errorf("idempotency: a record without a value: %v", r.State)
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
func (r Record) Failure() string {
	if r.State != Failed {
		return ""
	}
	return string(r.Data)
}
