package httpmw

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfter returns how long the server that sent r asks to wait: the header Retry-After of a 429 or a
// 503, in seconds, or a date less the Date of r. ok is false for another status, and without a valid
// header. d is at least 0 and at most 24 h, see [guard.Paused].
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
