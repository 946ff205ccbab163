package httpmw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	version1   = 1
	whole      = 1
	streamed   = 2
	maxHeaders = 64 << 10 // of recorded headers and trailers; above it the response is not recorded
)

// response is the response of a handler, or the part of it that is recorded.
type response struct {
	status   int
	streamed bool // the response was sent at once, so header is not recorded, and trailer and body are empty
	silent   bool // the handler has written nothing, so status is the 200 that net/http implies
	implied  bool // Hijack failed, and the handler called no WriteHeader
	header   http.Header
	trailer  http.Header
	body     []byte
}

// kept returns the part of a that may be recorded. before has the headers from before the handler.
func (a *response) kept(o IdempotentOptions, before http.Header) response {
	if a.streamed {
		return response{status: a.status, streamed: true}
	}
	return response{status: a.status, header: o.kept(a.header, before), trailer: o.kept(a.trailer, nil), body: a.body}
}

// write sends a. The headers of a replace headers of w with the same names. It sets no header of
// its own, such as Content-Length: code in front may change the body, for example compress it.
func (a *response) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, a.header)
	if len(a.trailer) > 0 { // the server sends only trailers that are announced
		h["Trailer"] = slices.Sorted(maps.Keys(a.trailer))
	}
	if a.status != http.StatusOK || len(a.body) > 0 || len(a.trailer) > 0 { // as a handler that writes nothing
		w.WriteHeader(a.status)
	}
	if len(a.body) > 0 {
		_, _ = w.Write(a.body) // fails if the client has disconnected
	}
	maps.Copy(h, a.trailer)
}

// codec encodes responses, in version 1:
//
//	1 byte version · 1 byte 1 · 2 bytes status · headers · trailers · uvarint n · n bytes body
//	1 byte version · 1 byte 2 · 2 bytes status                                    streamed
//
// headers and trailers are the number of headers, and for each header, sorted by name: its name,
// the number of its values, and the values. All numbers are uvarints. Each text is preceded by its
// length.
type codec struct{}

func (codec) Name() string { return "http" }

func (codec) Encode(v any) ([]byte, error) {
	a, ok := v.(response)
	if !ok {
		return nil, fmt.Errorf("httpmw: codec http cannot encode %T", v)
	}
	kind := byte(whole)
	if a.streamed {
		kind = streamed
	}
	if a.status < 200 || a.status > 999 {
		return nil, fmt.Errorf("httpmw: codec http cannot encode the status %d", a.status)
	}
	b := binary.BigEndian.AppendUint16([]byte{version1, kind}, uint16(a.status))
	if a.streamed {
		return b, nil
	}
	begin := len(b)
	b = appendHeader(appendHeader(slices.Grow(b, len(a.body)+1<<10), a.header), a.trailer)
	if n := len(b) - begin; n > maxHeaders {
		return nil, fmt.Errorf("httpmw: codec http cannot encode headers of %d bytes, at most %d", n, maxHeaders)
	}
	return appendText(b, a.body), nil
}

func (codec) Decode(data []byte, v any) error {
	p, ok := v.(*response)
	if !ok {
		return fmt.Errorf("httpmw: codec http cannot decode into %T", v)
	}
	if len(data) < 4 || data[0] != version1 || data[1] != whole && data[1] != streamed {
		return fmt.Errorf("%w: unknown beginning", errResponse)
	}
	a := response{status: int(binary.BigEndian.Uint16(data[2:])), streamed: data[1] == streamed}
	rest := data[4:]
	r := reader{rest: rest[:min(len(rest), maxHeaders)]} // decoded headers take more memory than encoded ones
	if a.status < 200 || a.status > 999 {
		r.fail("status")
	}
	if !a.streamed {
		a.header, a.trailer = r.header(), r.header()
		if r.err == nil {
			r.rest = rest[min(len(rest), maxHeaders)-len(r.rest):]
		}
		a.body = r.text()
	} else {
		r.rest = rest
	}
	if len(r.rest) > 0 {
		r.fail("end")
	}
	if len(a.body) > 0 && !bodyAllowed(a.status) {
		r.fail("body")
	}
	if r.err == nil {
		*p = a
	}
	return r.err
}

// DecodeResponse returns the response in a record of Idempotent: data is the Data of the
// idempotency.Content that idempotency.Lookup returns, and its Codec is "http". The header contains
// what was recorded, see IdempotentOptions.OmitHeaders. The body is empty if the response was
// streamed or above MaxResponse. The error is not nil if data is not such a response.
func DecodeResponse(data []byte) (status int, header http.Header, body []byte, err error) {
	var a response
	err = codec{}.Decode(data, &a)
	return a.status, a.header, a.body, err
}

func appendHeader(b []byte, h http.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b = appendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(h[name])))
		for _, v := range h[name] {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errResponse = errors.New("httpmw: bad response record")

// reader decodes a record. After the first error its methods return zero values.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s does not fit", errResponse, what)
	}
	r.rest = nil
}

// number reads a length or a count. It fails if the rest has fewer bytes than that, because each
// counted element takes at least one.
func (r *reader) number() int {
	n, used := binary.Uvarint(r.rest)
	if used <= 0 || n > uint64(len(r.rest)-used) || used > 1 && n>>(7*(used-1)) == 0 { // or not in its shortest form
		r.fail("number")
		return 0
	}
	r.rest = r.rest[used:]
	return int(n)
}

func (r *reader) text() []byte {
	n := r.number()
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// header returns nil if there are no headers.
func (r *reader) header() http.Header {
	n := r.number()
	if n == 0 {
		return nil
	}
	h, last := http.Header{}, ""
	for range n {
		name, known := nameOf(r.text())
		if name <= last || !known && (!isToken(name) || http.CanonicalHeaderKey(name) != name || neverKept(name)) {
			r.fail("header name")
			break
		}
		values := make([]string, r.number())
		for i := range values {
			values[i] = string(r.text())
			if strings.ContainsAny(values[i], "\r\n\x00") {
				r.fail("header value")
			}
			if r.err != nil {
				return h
			}
		}
		h[name], last = values, name
	}
	return h
}

// nameOf returns b as a string. If b is one of usualHeaders, it returns the shared string, and
// known is true. Such a name is valid.
func nameOf(b []byte) (name string, known bool) {
	if name, known = usual[string(b)]; known {
		return name, true
	}
	return string(b), false
}

var usual = func() map[string]string {
	names := map[string]string{}
	for _, name := range usualHeaders {
		names[name] = name
	}
	return names
}()

// statusError is the error that the Observer gets for a response that is not recorded.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("httpmw: status %d", int(e)) }

// ErrorType returns the value of error.type: the status code, as in OpenTelemetry's conventions for
// HTTP.
func (e statusError) ErrorType() string { return strconv.Itoa(int(e)) }
