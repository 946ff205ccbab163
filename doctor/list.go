package doctor

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxMatchLen  = 512 // the maximum length of a key
	longestPause = time.Minute
)

// Entry is a key that [List] yields, and its state.
type Entry struct {
	Kind event.Kind
	Key  string
	lockcore.Holding
	// RecordHead is the start of a done key's record, at most 512 bytes. It is set only with
	// ListOptions.RecordHeads.
	RecordHead []byte
}

// ListOptions say which keys List yields. The zero value means all.
type ListOptions struct {
	// Kind is KindExclusive or KindOnce. Default: both.
	Kind event.Kind
	// Match is a glob pattern of Redis for the whole key: *, ?, [a-z]. A backslash makes the next
	// character plain. A byte that is not printable ASCII, a space, a brace or a percent sign is
	// three bytes there (%20), as in Redis. At most 512 bytes. Default: "*".
	Match string
	// Free also yields free keys that an operator may look for. They have parked tasks, a restriction,
	// or processes in the queue, or their last hold was not released (Holding.NotReleased).
	Free bool
	// RecordHeads fills Entry.RecordHead.
	RecordHeads bool
	// Pace is the time between two steps of the SCAN on a server, at most a minute. Default: 0. With
	// 20 ms, a walk of a million keys of other programs takes 105 s instead of 1 to 2 s. It has
	// no effect in memory.
	Pace time.Duration
}

func (o ListOptions) validate() error {
	if o.Kind != 0 && o.Kind != event.KindExclusive && o.Kind != event.KindOnce {
		return fmt.Errorf("doctor: ListOptions.Kind is %v, must be KindExclusive, KindOnce or zero", o.Kind)
	}
	if len(o.Match) > maxMatchLen {
		return fmt.Errorf("doctor: ListOptions.Match is %d bytes long, must be at most %d", len(o.Match), maxMatchLen)
	}
	if o.Pace < 0 || o.Pace > longestPause {
		return fmt.Errorf("doctor: ListOptions.Pace is %v, must be between 0s and %v", o.Pace, longestPause)
	}
	return nil
}

// List yields the keys under the prefix of l that are held, shared, reserved, cooling, done, abandoned or
// paused, and those whose rate is in use, in no order. It is for operators, not for a program's logic.
//
// Another free key is not listed, even if tasks are parked on it, see ListOptions.Free.
//
// Exclusive keys have the names that were given to Acquire. Once keys have the names that the
// package above made. httpmw stores digests, which do not show what the client sent. List leaves
// out a key that Inspect refuses with ErrRecord.
//
// List uses SCAN, on one primary of a Cluster after the other:
//
//   - If a primary does not reply, List continues with the others, and then ends with
//     ErrUnavailable, whose text names that primary.
//   - A key that exists from the first step to the last is yielded at least once, and may be
//     yielded twice, or up to four times, if it has parked tasks, a queue or a rate. A key that appears or ends meanwhile may be missing, and so may a key whose slot moves to another
//     primary.
//   - Each Entry was true a moment before it is yielded. Two of them may be of different moments.
//   - On a majority of servers, List yields the keys that a majority has, and keeps all their names
//     in memory.
//   - Behind a client that is neither a *redis.Client nor a *redis.ClusterClient, List yields only
//     what that client's SCAN reaches.
//   - The cursor of a SCAN means nothing to another server. If another server takes the place of
//     the one that is listed (a failover, a restart), List ends with ErrUnavailable, because keys
//     may be missing. List recognizes a server by the run_id in INFO. If the user may not use INFO,
//     or the reply has no run_id, keys may be missing after a failover without an error.
//
// On PostgreSQL, List reads the names of all rows, 500 at a time, and 100 rows that match at once. It
// yields each key at most once, and Pace is the time between two hundreds of names.
//
// SCAN visits every key of the database, including those of other programs. 200 keys cost a round
// trip and about 0.2 ms of the server's time. 100 keys that match cost another round trip, and about
// 3 ms. Break out of the loop, or end ctx, to stop. The user needs the rights to SCAN and, to detect
// failovers, INFO. If INFO is refused, the ACL log gets an entry for each server.
//
// An error ends the sequence: the cause of ctx, ErrUnavailable, or an invalid o.
func List(ctx context.Context, l *lockcore.Locker, o ListOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := o.validate(); err != nil {
			yield(Entry{}, err)
			return
		}
		r := backend.ListRequest{Kind: backend.Kind(o.Kind), Match: o.Match, Free: o.Free, RecordHeads: o.RecordHeads, Pause: o.Pace}
		hidden := access.Of(l)
		for e, err := range hidden.Backend.List(ctx, r) {
			if err != nil {
				if end := endOf(ctx); end != nil {
					err = end
				} else {
					err = errtext.Wrap(lockcore.ErrUnavailable, err)
				}
				yield(Entry{}, err)
				return
			}
			h, _ := hidden.Holding(&e.Status).(lockcore.Holding)
			if !yield(Entry{Kind: event.Kind(e.Kind), Key: e.Name, Holding: h, RecordHead: e.Record}, nil) {
				return
			}
		}
	}
}
