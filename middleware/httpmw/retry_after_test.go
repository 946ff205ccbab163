package httpmw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestRetryAfter(t *testing.T) {
	const date = "Fri, 27 Nov 2026 12:00:00 GMT"
	for _, tt := range []struct {
		status     int
		after, now string
		want       time.Duration
		ok         bool
	}{
		{429, "3", "", 3 * time.Second, true},
		{503, "0", "", 0, true},
		{429, "315360000", "", 24 * time.Hour, true},
		{429, "99999999999999999999", "", 0, false},
		{429, "-3", "", 0, false},
		{429, "", "", 0, false},
		{429, "soon", "", 0, false},
		{200, "3", "", 0, false},
		{429, "Fri, 27 Nov 2026 12:00:07 GMT", date, 7 * time.Second, true},
		{429, "Fri, 27 Nov 2026 11:00:00 GMT", date, 0, true},
		{429, "Sat, 27 Nov 2027 11:00:00 GMT", date, 24 * time.Hour, true},
	} {
		r := &http.Response{StatusCode: tt.status, Header: http.Header{"Retry-After": {tt.after}, "Date": {tt.now}}}
		if d, ok := httpmw.RetryAfter(r); d != tt.want || ok != tt.ok {
			t.Errorf("%d, %q, %q: %v, %v, want %v, %v", tt.status, tt.after, tt.now, d, ok, tt.want, tt.ok)
		}
	}
	if _, ok := httpmw.RetryAfter(nil); ok {
		t.Error("no response has a Retry-After")
	}
}
