package cli

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// httpResultOf returns nil if data does not decode.
func httpResultOf(data []byte) *operator.HTTPResult {
	status, header, body, err := httpmw.DecodeResponse(data)
	if err != nil {
		return nil
	}
	r := &operator.HTTPResult{Status: status, Header: header, Size: len(body)}
	if e := header.Get("Content-Encoding"); (e == "" || e == "identity") && utf8.Valid(body) {
		r.Body = string(body)
	}
	return r
}

// describeResponse prints one line for the status, each value of a header, and each line of a text. Foreign
// text is made harmless to a terminal.
func describeResponse(r *operator.HTTPResult, line func(name string, v any)) {
	line("status", strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			line("header", operator.OneLine(name+": "+value))
		}
	}
	if r.Body == "" {
		kind := r.Header.Get("Content-Type")
		if kind == "" {
			kind = "no Content-Type"
		}
		line("body", fmt.Sprintf("%d bytes, %s", r.Size, operator.OneLine(kind)))
		return
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(r.Body, "\n"), "\n") {
		line("body", operator.OneLine(strings.ReplaceAll(strings.TrimSuffix(text, "\r"), "\t", "    ")))
	}
}
