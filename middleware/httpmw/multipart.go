package httpmw

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"mime"
	"strings"
)

// A client chooses a random boundary each time it sends a multipart body. So the fingerprint must
// not depend on it. But two requests that differ in anything else must have different fingerprints,
// also if only some parsers see the difference. So Content-Type and body are cut at the boundary,
// and all other bytes are digested.

// maxNested bounds how deep multipart parts of parts are cut. A deeper one is digested uncut.
const maxNested = 8

// cut is a multipart Content-Type and its body without the boundary: the type is before, boundary
// and after, and digest stands for the body.
type cut struct {
	before, after []byte
	digest        []byte
}

// cutMultipart reports false if contentType does not name a multipart body, or if the body
// contains the boundary elsewhere than in a delimiter. Then both must be compared as they are.
func cutMultipart(contentType, body []byte, nested int) (c cut, ok bool) {
	const multipart = "multipart/"
	if t := bytes.TrimSpace(contentType); len(t) < len(multipart) || !strings.EqualFold(string(t[:len(multipart)]), multipart) { //planted:boundary-cut
		return c, false
	}
	_, params, err := mime.ParseMediaType(string(contentType))
	boundary := []byte(params["boundary"])
	// If the type contains the boundary twice, it does not matter which one is cut: the other one
	// is compared.
	at := bytes.LastIndex(contentType, boundary)
	if err != nil || len(boundary) == 0 || at < 0 { // at < 0: the boundary is escaped
		return c, false
	}
	h := sha256.New()
	delimiter := append([]byte("--"), boundary...)
	for begin, part := 0, false; ; part = true {
		n := bytes.Index(body[begin:], delimiter)
		if n < 0 {
			section(h, body[begin:], part, nested)
			return cut{contentType[:at], contentType[at+len(boundary):], h.Sum(nil)}, true
		}
		end := begin + n + len(delimiter)
		if !delimits(body[:begin+n], body[end:]) {
			return c, false
		}
		section(h, body[begin:begin+n], part, nested)
		begin = end
	}
}

// delimits reports whether the text between before and after is a delimiter: a line of its own,
// except that "--" and spaces may follow it. See RFC 2046, section 5.1.1.
func delimits(before, after []byte) bool {
	after = bytes.TrimLeft(bytes.TrimPrefix(after, []byte("--")), " \t")
	return (len(before) == 0 || before[len(before)-1] == '\n') &&
		(len(after) == 0 || after[0] == '\n' || bytes.HasPrefix(after, []byte("\r\n")))
}

// section writes the bytes between two delimiters to h. Two different sections never write the same
// bytes. A part is cut if it is a multipart body itself.
func section(h hash.Hash, b []byte, part bool, nested int) {
	if part && nested < maxNested {
		begin, end, content := contentTypeOf(b)
		if c, ok := cutMultipart(b[begin:end], b[content:], nested+1); ok {
			h.Write([]byte{1})
			prefixed(h, b[:begin], c.before)
			prefixed(h, c.after, b[end:content])
			h.Write(c.digest)
			return
		}
	}
	h.Write([]byte{0})
	prefixed(h, b)
}

// prefixed writes texts to h, each one behind its length.
func prefixed(h hash.Hash, texts ...[]byte) {
	for _, t := range texts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(t))))
		h.Write(t)
	}
}

// contentTypeOf returns where the value of the first Content-Type of a part begins and ends, and
// where the content of the part begins. A part without one has an empty value.
func contentTypeOf(part []byte) (begin, end, content int) {
	const name = "content-type:"
	found := false
	for at := bytes.IndexByte(part, '\n') + 1; at < len(part); { // the first line is the rest of the delimiter
		next := len(part)
		if n := bytes.IndexByte(part[at:], '\n'); n >= 0 {
			next = at + n + 1
		}
		line := part[at:next]
		switch {
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			return begin, end, next
		case found && end == at && (line[0] == ' ' || line[0] == '\t'): // a folded line
			end = next
		case !found && len(line) >= len(name) && strings.EqualFold(string(line[:len(name)]), name):
			begin, end, found = at+len(name), next, true
		}
		at = next
	}
	return begin, end, len(part)
}
