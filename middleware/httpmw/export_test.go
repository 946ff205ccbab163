package httpmw

import "net/http"

var UsualHeaders = usualHeaders

func NeverKept(name string) bool { return neverKept(name) }

func ClientKey(h http.Header) (string, error) {
	return IdempotentOptions{Header: HeaderKey}.clientKey(h)
}

// CutDigest returns the digest of a multipart body without its boundary, or false.
func CutDigest(contentType, body string) (digest string, ok bool) {
	c, ok := cutMultipart([]byte(contentType), []byte(body), 0)
	return string(c.digest), ok
}

type Recorded struct {
	Status          int
	Streamed        bool
	Header, Trailer http.Header
	Body            []byte
}

func Encode(a Recorded) ([]byte, error) {
	return codec{}.Encode(response{status: a.Status, streamed: a.Streamed, header: a.Header, trailer: a.Trailer, body: a.Body})
}

func Decode(b []byte) (Recorded, error) {
	var a response
	err := codec{}.Decode(b, &a)
	return Recorded{a.status, a.streamed, a.header, a.trailer, a.body}, err
}
