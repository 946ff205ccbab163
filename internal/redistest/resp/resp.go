// Package resp splits the data of a Redis connection into requests and replies. So a connection of
// a test can count, lose or delay them one by one. It reads RESP2 and RESP3, and interprets only
// the names of commands.
package resp

import (
	"bytes"
	"strconv"
)

// Split finds the first value of b. It returns its length in bytes, whether it is an out-of-band
// push, and whether it is complete. A value that is not RESP counts as one line.
func Split(b []byte) (size int, push, ok bool) {
	n, ok := value(b, 0)
	return n, len(b) > 0 && b[0] == '>', ok
}

// Args returns the elements of a request, which is an array of bulk strings. It returns nil if b is
// something else.
func Args(b []byte) []string {
	if len(b) == 0 || b[0] != '*' {
		return nil
	}
	count, at, ok := header(b, 0)
	if !ok {
		return nil
	}
	var args []string
	for range count {
		if at >= len(b) || b[at] != '$' {
			return nil
		}
		size, from, ok := header(b, at)
		if !ok || size < 0 || size > len(b)-from-2 {
			return nil
		}
		args = append(args, string(b[from:from+size]))
		at = from + size + 2
	}
	return args
}

// value returns the end of the value at b[at:], and whether it is complete.
func value(b []byte, at int) (end int, ok bool) {
	if at >= len(b) {
		return 0, false
	}
	kind := b[at]
	n, next, ok := header(b, at)
	if !ok {
		return 0, false
	}
	switch kind {
	case '$', '!', '=':
		if n < 0 {
			return next, true
		}
		if n > len(b)-next-2 {
			return 0, false
		}
		return next + n + 2, true
	case '*', '~', '>':
	case '%':
		n *= 2
	case '|': // attributes precede the value that they describe
		n = n*2 + 1
	default: // one line: status, error, integer, null, boolean, double, big number
		return next, true
	}
	for range n {
		if next, ok = value(b, next); !ok {
			return 0, false
		}
	}
	return next, true
}

// header reads the line at b[at:]: the number after its first byte (0 if there is none), and the
// start of the next line.
func header(b []byte, at int) (n, next int, ok bool) {
	end := bytes.Index(b[at:], []byte("\r\n"))
	if end < 1 {
		return 0, at + 2, end == 0
	}
	n, err := strconv.Atoi(string(b[at+1 : at+end]))
	if err != nil || n > 1<<30 {
		n = 0
	}
	return n, at + end + 2, true
}
