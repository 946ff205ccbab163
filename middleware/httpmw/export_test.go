package httpmw

import "net/http"

var UsualHeaders = usualHeaders

func NeverKept(name string) bool { return neverKept(name) }

func ClientKey(h http.Header) (string, error) {
	return IdempotentOptions{Header: HeaderKey}.clientKey(h)
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
