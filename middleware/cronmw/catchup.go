package cronmw

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// quarter is the interval at which a new note of a job is made. A note records since when the job
// has existed. It is kept for a year, and the last four are read.
const quarter = 90 * 24 * time.Hour

// missed returns the latest tick before now if the job existed then. The tick may have run: its key
// decides that.
func (s *singleton) missed(ctx context.Context, now time.Time) (time.Time, bool) {
	at, ok := s.latest(now.In(s.zone))
	if !ok {
		return at, false
	}
	for {
		since, err := s.since(ctx, now)
		if err == nil {
			return at, !since.After(at)
		}
		if s.now().Sub(at) > s.gap(at) || !sleep(ctx, retryAfter, nil) { // the next tick is due, so this one is no longer the latest
			return at, false
		}
	}
}

// since returns since when a job of this name with these ticks has existed. It also makes the note
// of this quarter.
func (s *singleton) since(ctx context.Context, now time.Time) (time.Time, error) {
	first, err := s.note(ctx, now)
	for ago := quarter; err == nil && ago <= 3*quarter; ago += quarter {
		var e idempotency.Status
		if e, err = idempotency.Lookup(ctx, s.locks, s.noteKey(now.Add(-ago))); err != nil || e.State != lockcore.StateDone {
			continue
		}
		var micro int64
		if err = e.Content.Value(idempotency.JSON(), &micro); err == nil && time.UnixMicro(micro).Before(first) {
			first = time.UnixMicro(micro)
		}
	}
	return first, err
}

// note makes the note of the job for this quarter, unless there is one. It returns the time of the
// note: when the job was first noted in this quarter.
func (s *singleton) note(ctx context.Context, now time.Time) (time.Time, error) {
	key := s.noteKey(now)
	o := guard.OnceOptions{Keep: maxKeep, Terms: lockcore.Terms{Name: "cronmw"}}
	r, err := guard.OnceValue(ctx, s.locks, key, o, func(ctx context.Context) (int64, error) {
		h, _ := access.HoldOf(ctx, key)
		return h.GrantedAt.UnixMicro(), nil
	})
	return time.UnixMicro(r.Value), err
}

// noteKey returns the key of the note for the quarter of now. It is never the key of a tick, which
// ends with a time.
func (s *singleton) noteKey(now time.Time) string {
	ticks := sha256.Sum256([]byte(s.text))
	return fmt.Sprintf("%s%s#%x/%d", prefix, s.name, ticks[:8], now.Unix()/int64(quarter/time.Second))
}

// notes remembers the quarter for which the process has noted a job.
type notes struct{ quarter int64 }

// stale reports whether now is in another quarter, and remembers that quarter.
func (n *notes) stale(now time.Time) bool {
	q := now.Unix() / int64(quarter/time.Second)
	if n.quarter == q {
		return false
	}
	n.quarter = q
	return true
}
