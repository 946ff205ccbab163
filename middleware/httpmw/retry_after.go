package httpmw

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfter returns how long the server that sent r asks to wait, by the header Retry-After of a
// 429 or a 503. The header has a number of seconds or a date, from which RetryAfter subtracts the
// Date of r. ok is false if r has another status or no valid header.
//
// 0 means that the client may try again now: [guard.Paused] then pauses nothing. A longer time than
// 24 h becomes 24 h, the longest pause.
func RetryAfter(r *http.Response) (d time.Duration, ok bool) {
	const most = 24 * time.Hour
	if r == nil || r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	text := r.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(n, uint64(most/time.Second))) * time.Second, true //nolint:gosec // bounded
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(at.Sub(now), 0), most), true
}
