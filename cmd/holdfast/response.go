package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// httpResult is a recorded response of httpmw.
type httpResult struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Size   int         `json:"size"`           // of the body in bytes
	Body   string      `json:"body,omitempty"` // if it is text
}

// httpResultOf returns nil if data does not decode.
func httpResultOf(data []byte) *httpResult {
	status, header, body, err := httpmw.DecodeResponse(data)
	if err != nil {
		return nil
	}
	r := &httpResult{Status: status, Header: header, Size: len(body)}
	if e := header.Get("Content-Encoding"); (e == "" || e == "identity") && utf8.Valid(body) {
		r.Body = string(body)
	}
	return r
}

// describe prints one line for the status, each value of a header, and each line of a text. Foreign
// text is made harmless to a terminal.
func (r *httpResult) describe(line func(name string, v any)) {
	line("status", strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			line("header", oneLine(name+": "+value))
		}
	}
	if r.Body == "" {
		kind := r.Header.Get("Content-Type")
		if kind == "" {
			kind = "no Content-Type"
		}
		line("body", fmt.Sprintf("%d bytes, %s", r.Size, oneLine(kind)))
		return
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(r.Body, "\n"), "\n") {
		line("body", oneLine(strings.ReplaceAll(strings.TrimSuffix(text, "\r"), "\t", "    ")))
	}
}
