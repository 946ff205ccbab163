package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"
)

const (
	scanCount = 1000 // names that Redis looks at for each SCAN: about a millisecond of its time
	listBatch = 100  // keys that are asked for in one round trip
)

// Entry is a key and what Redis knows of it.
type Entry struct {
	Kind Kind
	Key  string
	Holding
	// RecordHead is the start of a done key's record, at most 512 bytes; only with ListOptions.RecordHeads.
	RecordHead []byte
}

// ListOptions say which keys List yields. The zero value means all.
type ListOptions struct {
	// Kind is KindExclusive or KindOnce. Default: both.
	Kind Kind
	// Match is a glob pattern of Redis for the whole key: *, ?, [a-z]; a backslash makes the next one plain. A byte that is not
	// printable ASCII, a space, a brace or a percent sign is three bytes there (%20), as in Redis. Default: "*".
	Match string
	// Free also yields free exclusive keys whose last holder died, see Holding.Died.
	Free bool
	// RecordHeads fills Entry.RecordHead.
	RecordHeads bool
}

func (o ListOptions) validate() error {
	if o.Kind != "" && o.Kind != KindExclusive && o.Kind != KindOnce {
		return fmt.Errorf("lockcore: ListOptions.Kind is %q, must be KindExclusive, KindOnce or empty", o.Kind)
	}
	if len(o.Match) > maxKeyLen {
		return fmt.Errorf("lockcore: ListOptions.Match is %d bytes long, must be at most %d", len(o.Match), maxKeyLen)
	}
	return nil
}

// List yields the keys that are held, reserved, parked, done or abandoned under the Locker's prefix, in no order. It is for
// operators, not for a program's logic.
//
// It is made of SCAN, on every primary of a Cluster one after the other. So a key that is there from the first step to the last is
// yielded at least once, and may be twice; one that comes or goes meanwhile, or whose slot moves to another primary, may be
// missed. Each Entry was true when it was asked for, a moment before it is yielded; two of them may be of different moments. Behind a
// client that is neither a *redis.Client nor a *redis.ClusterClient only what its SCAN reaches is listed.
//
// A step of SCAN says nothing to another server: where one takes the place of the other in the middle (a failover, a restart), List ends
// with ErrUnavailable, because keys may be missing, and has to be begun again. It knows servers by the run_id in INFO. Where the user may not
// ask for INFO, or the answer has none, keys may be missing without an error after a failover.
//
// SCAN walks over every key of the database, also over those that are not of holdfast: about a millisecond of the server's time for
// each 1,000 of them, a round trip each, and one more for 100 keys that match. Break out of the loop, or end ctx, to stop. The user needs the
// rights to SCAN and, for failovers, INFO; if INFO is refused, the ACL's log gets an entry for each server.
//
// Exclusive keys are shown as they were given to Acquire. Keys of Once are shown as the package above made them; httpmw
// stores digests, which do not show what the client sent. A key that Inspect refuses with ErrRecord is left out.
//
// An error ends the sequence: that of ctx, ErrUnavailable, or of o.
func (l *Locker) List(ctx context.Context, o ListOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := o.validate()
		var all []server
		if err == nil {
			all, err = l.masters(ctx)
		}
		for _, s := range all {
			if err != nil {
				break
			}
			var more bool
			if more, err = l.listOn(ctx, s.rdb, o, yield); !more && err == nil {
				return
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			yield(Entry{}, context.Cause(ctx))
		case o.validate() != nil:
			yield(Entry{}, err)
		default:
			yield(Entry{}, unavailable(err))
		}
	}
}

// listOn is List of one server. more is false when the loop was left.
func (l *Locker) listOn(ctx context.Context, rdb redis.UniversalClient, o ListOptions, yield func(Entry, error) bool) (more bool, err error) {
	kinds := map[Kind]string{"": "[xo]", KindExclusive: "x", KindOnce: "o"}[o.Kind]
	pattern := plain(l.prefix) + layout + kinds + ":{" + escape(cmp.Or(o.Match, "*")) + "}"
	walk := walk{l: l, rdb: rdb, pattern: pattern}
	for {
		names, err := walk.next(ctx)
		if err != nil {
			return false, err
		}
		for some := range slices.Chunk(names, listBatch) {
			entries, err := l.entries(ctx, rdb, some, o)
			if err != nil {
				return false, err
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return false, nil
				}
			}
		}
		if walk.cursor == 0 {
			return true, nil
		}
	}
}

// entries asks for keys by their names in Redis, in one round trip. It leaves out keys that are free, cannot be read,
// or have another layout.
func (l *Locker) entries(ctx context.Context, rdb redis.UniversalClient, names []string, o ListOptions) ([]Entry, error) {
	asked := make([]Entry, 0, len(names))
	keys := make([][2]string, 0, len(names))
	for _, name := range names {
		if e, ok := l.entryOf(name); ok {
			asked, keys = append(asked, e), append(keys, [2]string{name, name + ":q"})
		}
	}
	record := recordNone
	if o.RecordHeads {
		record = recordHead
	}
	replies, err := l.inspectAll(ctx, rdb, keys, record)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for i, e := range asked {
		reply, ok := replies[i].([]any)
		if !ok {
			continue // this key alone cannot be read, or has moved to another server
		}
		if e.Holding, err = readHolding(e.Kind, reply); err != nil || e.State == StateFree && !(o.Free && e.Died) {
			continue
		}
		if e.State == StateDone && o.RecordHeads {
			e.RecordHead = []byte(text(reply, 11))
		}
		entries = append(entries, e)
	}
	return entries, nil
}
