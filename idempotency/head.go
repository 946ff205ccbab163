package idempotency

import (
	"encoding/binary"
	"fmt"
)

// Head returns the ending of a record and, for a failed run, the start of its error text. b is a
// record or its start, such as doctor.Entry.RecordHead. The first 512 bytes of a record contain at
// least 400 bytes of the text. If b is something else, Head returns ErrFormat. It does not detect
// errors after the end of b.
func Head(b []byte) (ending Ending, failure string, err error) {
	if r, err := Decode(b); err == nil {
		return r.Ending, r.Failure(), nil
	}
	if len(b) < 4 || b[0] != version1 && b[0] != version2 {
		return 0, "", fmt.Errorf("%w: %d bytes", ErrFormat, len(b))
	}
	ending = Ending(b[1])
	if ending != Done && ending != Failed { // b contains all of such a record, so Decode has accepted it
		return 0, "", fmt.Errorf("%w: ending %d", ErrFormat, b[1])
	}
	rest := b[min(3+int(b[2]), len(b)):]
	if b[0] == version2 && len(rest) > 0 {
		rest = rest[min(1+int(rest[0]), len(rest)):]
	}
	m, used := binary.Uvarint(rest)
	if used <= 0 || m < uint64(len(rest)-used) {
		return 0, "", fmt.Errorf("%w: data length does not fit", ErrFormat)
	}
	if ending == Failed {
		failure = string(rest[used:])
	}
	return ending, failure, nil
}
