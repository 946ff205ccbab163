package idempotency

import (
	"encoding/binary"
	"fmt"
)

// Head reads from the first bytes of a record how the run ended and, if it failed, the start of its
// error text. b is a record or the start of one, such as lockcore.Entry.RecordHead: 512 bytes
// contain at least 400 bytes of the text. Head returns ErrFormat for anything else. It does not
// detect errors after the end of b.
func Head(b []byte) (ending Ending, failure string, err error) {
	if r, err := Decode(b); err == nil {
		return r.Ending, r.Failure(), nil
	}
	if len(b) < 4 || b[0] != version1 && b[0] != version2 {
		return 0, "", fmt.Errorf("%w: %d bytes", ErrFormat, len(b))
	}
	ending = Ending(b[1])
	if ending != Done && ending != Failed { // a tombstone is short enough to be whole
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
