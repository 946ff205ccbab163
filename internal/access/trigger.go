package access

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file has the order of the triggers of an exclusive key, see backend.TriggerRequest.

// Note is what the backend says of a trigger.
type Note struct {
	Newest bool          // false: a newer trigger was noted, a newer run has succeeded, or it has ended
	Again  time.Duration // not 0: a trigger with this entry has just ended, ask again then
	Number int64         // in µs of the backend's clock; 0: it has ended
	First  int64         // Newest: number of the first trigger that no success covers
	Now    int64         // Newest: the time in µs of the backend's clock
	Older  int           // Newest, for the first time: how many older triggers have not ended, up to 64
}

// NoteTrigger gives a trigger a number, unless it has one. fresh: its task was never retried.
func (l Locker) NoteTrigger(ctx context.Context, key, entry string, fresh bool) (Note, error) {
	r, err := l.Order(ctx, key, backend.TriggerRequest{Op: backend.TriggerNote, Entry: entry, Fresh: fresh})
	return Note{Newest: r.Outcome == backend.TriggerNewest, Again: r.Wait, Number: r.Number, First: r.First, Now: r.Now, Older: r.Older}, err
}

// EndTrigger ends a trigger, if it has this number.
func (l Locker) EndTrigger(ctx context.Context, key, entry string, number int64) error {
	_, err := l.Order(ctx, key, backend.TriggerRequest{Op: backend.TriggerDrop, Entry: entry, Number: number, Ends: true})
	return err
}

// RecordSuccess records that the run of a trigger has succeeded. ends: the trigger ends too.
func (l Locker) RecordSuccess(ctx context.Context, key, entry string, number int64, ends bool) error {
	_, err := l.Order(ctx, key, backend.TriggerRequest{Op: backend.TriggerDone, Entry: entry, Number: number, Ends: ends})
	return err
}

// RecordHold records that a run of the hold with this token has succeeded. Its number is the least
// possible time of the grant: a token may be ahead of the clock by the block of the grant before.
func (l Locker) RecordHold(ctx context.Context, key string, token int64) error {
	return l.RecordSuccess(ctx, key, "", token-backend.TokensPerGrant, false)
}

// LastSuccess returns the greatest number of a success, or 0, and the time, in µs of the backend's
// clock.
func (l Locker) LastSuccess(ctx context.Context, key string) (last, now int64, err error) {
	r, err := l.Order(ctx, key, backend.TriggerRequest{Op: backend.TriggerRead})
	return r.Succeeded, r.Now, err
}
