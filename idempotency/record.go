// Package idempotency is what a done key remembers: the record that guard.Once stores, its codecs, and the digests that
// tell one payload and one key from another.
//
// A record is versioned and strict: a byte too many, a length that does not fit or an unknown version is an error,
// never a guess. Nothing here talks to Redis; package lockcore stores records as opaque bytes.
package idempotency

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// DefaultMaxResult bounds the encoded result of one record: 256 KiB. Above it a tombstone is stored.
	DefaultMaxResult = 256 << 10
	maxRecord        = 64 << 20
	maxCodecName     = 32
	version1         = 1
)

// State says how the run ended that a record stands for.
type State byte

// The states of a record.
const (
	Done      State = 1 // with a result
	Failed    State = 2 // with an error that is final; Data is its text
	Tombstone State = 3 // done, but the result was too large to keep or did not encode
)

// Record is what a done key remembers.
type Record struct {
	State State
	Codec string // name of the codec that wrote Data; empty unless State is Done
	Data  []byte
}

// ErrRecord: the bytes are not a record of a version that this release knows.
var ErrRecord = errors.New("idempotency: bad record")

// Encode returns the bytes of r in version 1:
//
//	1 byte version · 1 byte state · 1 byte n · n bytes codec name · uvarint m · m bytes data
func (r Record) Encode() ([]byte, error) {
	if len(r.Codec) > maxCodecName {
		return nil, fmt.Errorf("idempotency: codec name is %d bytes long, at most %d", len(r.Codec), maxCodecName)
	}
	if len(r.Data) > maxRecord {
		return nil, fmt.Errorf("idempotency: record data is %d bytes long, at most %d", len(r.Data), maxRecord)
	}
	b := make([]byte, 0, 3+len(r.Codec)+binary.MaxVarintLen32+len(r.Data))
	b = append(b, version1, byte(r.State), byte(len(r.Codec)))
	b = append(b, r.Codec...)
	b = binary.AppendUvarint(b, uint64(len(r.Data)))
	return append(b, r.Data...), nil
}

// Decode reads what Encode wrote. It answers ErrRecord for anything else. The record's Data points into b.
func Decode(b []byte) (Record, error) {
	if len(b) < 4 {
		return Record{}, fmt.Errorf("%w: %d bytes", ErrRecord, len(b))
	}
	if b[0] != version1 {
		return Record{}, fmt.Errorf("%w: version %d", ErrRecord, b[0])
	}
	r := Record{State: State(b[1])}
	if r.State < Done || r.State > Tombstone {
		return Record{}, fmt.Errorf("%w: state %d", ErrRecord, b[1])
	}
	n := int(b[2])
	if n > maxCodecName || len(b) < 3+n+1 {
		return Record{}, fmt.Errorf("%w: codec name of %d bytes in %d", ErrRecord, n, len(b))
	}
	r.Codec = string(b[3 : 3+n])
	rest := b[3+n:]
	m, used := binary.Uvarint(rest)
	if used <= 0 || m > maxRecord || uint64(len(rest)-used) != m {
		return Record{}, fmt.Errorf("%w: data length does not fit", ErrRecord)
	}
	if len(binary.AppendUvarint(nil, m)) != used {
		return Record{}, fmt.Errorf("%w: data length is not in its shortest form", ErrRecord)
	}
	if (r.State == Tombstone && m != 0) || (r.State != Done && n != 0) {
		return Record{}, fmt.Errorf("%w: state %d with a codec or data", ErrRecord, r.State)
	}
	r.Data = rest[used:]
	return r, nil
}
