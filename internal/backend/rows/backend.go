// Package rows is a backend on rows with a version, for a database. A method reads a row, applies a rule
// of package rules to the key that the row contains, and writes the row if its version is still the
// same. So the rules have one implementation, and no lock is held while a client calculates.
//
// It has these parts:
//
//   - Store (store.go) is the database.
//   - A row is decoded and encoded in row.go. A plain hold has columns of its own, because the three
//     statements Grant, Free and Finish change it without a read.
//   - change.go reads, applies rules and writes, again after a conflict.
//   - This file, operator.go and list.go have the methods of package backend, and cleanup.go sends what
//     package cleanup repeats.
//
// Invariants, for whatever is lost, late or repeated:
//
//   - A Write takes effect within WriteTime after its Read, or never. So a client that was paused cannot
//     insert a row that Purge has deleted meanwhile, with a smaller token.
//   - The token of a row never gets smaller than one that was used, and only Purge deletes rows: those
//     that were free for an hour.
//   - The time of a rule is that of its Read, and the version says that no write came between.
package rows

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/cleanup"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// Options are the options of New.
type Options struct {
	backend.Options
	Name string // for users
	// Calls and Ends are the same store on connections of their own, so that what ends or renews a hold
	// does not wait for what acquires keys. Close of the Backend closes both.
	Calls, Ends Store
	// ListeningFor is how long an answer of Store.Listening counts.
	ListeningFor time.Duration
}

// Backend stores keys in rows.
type Backend struct {
	o           Options
	calls, ends Store
	cleanups    *cleanup.Queue
	busy        recent
	listening   listening

	base   context.Context //nolint:containedctx // ends with Close; parent of all background work
	stop   context.CancelFunc
	purger sync.WaitGroup
}

var _ backend.Backend = (*Backend)(nil)

// New returns a Backend on o.Calls and o.Ends. It sends nothing. It purges every hour.
func New(o Options) *Backend {
	b := &Backend{o: o, calls: o.Calls, ends: o.Ends}
	b.busy.began = time.Now()
	b.base, b.stop = context.WithCancel(context.Background())
	b.cleanups = cleanup.New(b.base, cleaner{b}, o.Options)
	b.purger.Go(b.purge) // Close waits for it
	return b
}

// purge purges every hour. It begins at a random time, so that Lockers that start together do not purge
// together.
func (b *Backend) purge() {
	for wait := rand.N(time.Hour); backend.Sleep(b.base, wait); wait = time.Hour {
		_, _ = Purge(b.base, b.calls) // the next one deletes what is left
	}
}

// Key implements backend.Backend. The name of the row is the name of the key after x: or o:.
func (b *Backend) Key(kind backend.Kind, name string) backend.Key {
	stored := "x:" + name
	if kind == backend.KindOnce {
		stored = "o:" + name
	}
	return backend.Key{Kind: kind, Name: name, Stored: [2]string{stored, stored}}
}

// ours reports whether a row has the name of a key. Others were written by hand.
func ours(stored string) bool {
	return strings.HasPrefix(stored, "x:") || strings.HasPrefix(stored, "o:")
}

// keyOf returns the key of a row.
func keyOf(stored string) backend.Key {
	k := backend.Key{Kind: backend.KindExclusive, Name: stored[2:], Stored: [2]string{stored, stored}}
	if stored[0] == 'o' {
		k.Kind = backend.KindOnce
	}
	return k
}

// Acquire implements backend.Backend. The first send of a request for the key alone is a Grant, and only
// if that fails a read and a write. A key that was busy a moment ago may have a queue, and then the Grant
// would only delay the statements of the others.
func (b *Backend) Acquire(ctx context.Context, r backend.AcquireRequest) (reply backend.AcquireReply, err error) {
	limit, start := min(r.Timeout, backend.CallTimeout), time.Now()
	sent := start
	if b.cleanups.Blocks(r.First) {
		if err := b.cleanups.Before(ctx, r.Key.Stored[0], r.First, limit); err != nil {
			return backend.AcquireReply{Sent: sent}, err
		}
		sent = time.Now()
		limit = min(r.Timeout-sent.Sub(start), backend.CallTimeout) // r.Timeout includes the wait for withdrawals
	}
	ctx, cancel := b.within(ctx, limit)
	defer cancel()
	if err := b.over(ctx); err != nil {
		return backend.AcquireReply{Sent: sent}, err
	}
	if r.First && r.Floor == 0 && r.Share.Alone() && !b.busy.has(r.Key.Stored[0]) {
		token, granted, err := b.calls.Grant(ctx, Grant{
			Name: r.Key.Stored[0], Owner: r.ID, Locker: b.o.Locker, Holder: r.Holder, Fingerprint: r.Fingerprint,
			Lease: r.Lease.Microseconds(), Retention: r.Retention.Milliseconds() * 1000,
		})
		switch {
		case err != nil:
			return backend.AcquireReply{Sent: sent, Repeated: b.calls.MayTakeEffect(err)}, b.closedOr(err)
		case granted:
			return backend.AcquireReply{Outcome: backend.OutcomeGranted, Sent: sent, Token: token, GrantedAt: time.UnixMicro(token), Attempt: 1, Plain: true}, nil
		}
	}
	lost, err := b.apply(ctx, b.calls, r.Key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, reply, notices = rules.Acquire(*k, &r, e)
		return notices, reply.Outcome != backend.OutcomeBusy
	})
	if err != nil {
		reply = backend.AcquireReply{}
	} else if reply.Outcome == backend.OutcomeBusy {
		b.busy.add(r.Key.Stored[0])
	}
	reply.Sent, reply.Repeated = sent, lost
	return reply, err
}

// recent has the names of which one was added within the last second. Two names of the same hash count as
// one, which costs a statement more.
type recent struct {
	began time.Time
	ends  [1024]atomic.Int64 // after began
}

var seed = maphash.MakeSeed()

func (r *recent) end(name string) *atomic.Int64 {
	return &r.ends[maphash.String(seed, name)%uint64(len(r.ends))]
}

func (r *recent) add(name string) { r.end(name).Store(int64(time.Since(r.began) + time.Second)) }

func (r *recent) has(name string) bool { return r.end(name).Load() > int64(time.Since(r.began)) }

// Renew implements backend.Backend. The renewals of a key are one write.
func (b *Backend) Renew(ctx context.Context, rs []backend.RenewRequest) []backend.RenewReply {
	ctx, cancel := b.within(ctx, backend.CallTimeout)
	defer cancel()
	replies := make([]backend.RenewReply, len(rs))
	var all changes
	for i := range rs {
		all.add(rs[i].Key, renewal(&rs[i], &replies[i]))
	}
	for i, c := range b.applyChanges(ctx, b.ends, &all) {
		if c.err != nil {
			replies[i] = backend.RenewReply{Err: c.err}
		}
	}
	return replies
}

func renewal(r *backend.RenewRequest, reply *backend.RenewReply) rule {
	return func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		*k, reply.Verdict = rules.Renew(*k, r, e)
		return nil, true
	}
}

// Extend implements backend.Backend.
func (b *Backend) Extend(ctx context.Context, r backend.RenewRequest) (reply backend.RenewReply, sent time.Time) {
	sent, _, err := b.insist(ctx, b.ends, r.Key, renewal(&r, &reply))
	if err != nil {
		reply = backend.RenewReply{Err: err}
	}
	return reply, sent
}

// Spend implements backend.Backend.
func (b *Backend) Spend(ctx context.Context, key *backend.Key, rate backend.Rate) error {
	_, _, err := b.insist(ctx, b.calls, key, func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		*k = rules.Spend(*k, rate, e)
		return nil, true
	})
	return err
}

// Release implements backend.Backend. That of a plain hold is a Free.
func (b *Backend) Release(ctx context.Context, r backend.ReleaseRequest) (reply backend.ReleaseReply, err error) {
	sent := time.Now()
	ctx, cancel := b.within(context.WithoutCancel(ctx), backend.CallTimeout)
	defer cancel()
	if r.Plain && !r.Repeated && !r.Abandon && r.Next == nil && r.Share.Alone() && r.Key.Kind == backend.KindExclusive && time.Until(r.CoolUntil) <= 0 {
		freed, err := b.ends.Free(ctx, r.Key.Stored[0], r.ID, r.Token)
		if freed || err != nil {
			return backend.ReleaseReply{Released: freed, Repeated: err != nil && b.calls.MayTakeEffect(err)}, b.closedOr(err)
		}
	}
	lost, err := b.apply(ctx, b.ends, r.Key, release(&r, &reply))
	if err != nil {
		reply = backend.ReleaseReply{}
	}
	reply.Repeated, reply.Next.Sent, reply.Next.Repeated = lost, sent, lost
	return reply, err
}

// release returns the rule of a release. The lost release of an exclusive key costs time, because its
// lease ends. A lost cooldown would let the next call begin too early, and a once key would be abandoned.
func release(r *backend.ReleaseRequest, reply *backend.ReleaseReply) rule {
	return func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		cooldown := time.Duration(0)
		if !r.CoolUntil.IsZero() && !r.Abandon {
			cooldown = max(time.Until(r.CoolUntil), 0)
		}
		*k, *reply, notices = rules.Release(*k, r, cooldown.Microseconds(), e)
		return notices, cooldown > 0 || r.Next != nil || r.Key.Kind == backend.KindOnce
	}
}

// Complete implements backend.Backend. That of a plain hold is a Finish.
func (b *Backend) Complete(ctx context.Context, r backend.CompleteRequest) (reply backend.ReleaseReply, err error) {
	ctx, cancel := b.within(ctx, backend.CallTimeout)
	defer cancel()
	if r.Plain && !r.Repeated && len(r.Record) <= rules.MaxPlainRecord {
		data := rules.Encode(rules.Key{Plain: true, State: rules.Done, CompletedBy: r.ID, Record: r.Record, Used: r.Token, Attempts: 1})
		finished, err := b.ends.Finish(ctx, r.Key.Stored[0], r.ID, data, r.Keep.Milliseconds()*1000)
		if finished || err != nil {
			return backend.ReleaseReply{Released: finished, Repeated: err != nil && b.calls.MayTakeEffect(err)}, b.closedOr(err)
		}
	}
	lost, err := b.apply(ctx, b.ends, r.Key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, reply, notices = rules.Complete(*k, &r, e)
		return notices, true
	})
	if err != nil {
		reply = backend.ReleaseReply{}
	}
	reply.Repeated = lost
	return reply, err
}

// Adopt implements backend.Backend.
func (b *Backend) Adopt(ctx context.Context, r backend.AdoptRequest) (reply backend.AdoptReply, err error) {
	sent, lost, err := b.insist(ctx, b.ends, r.Key, func(k *rules.Key, e rules.Env) ([]rules.Notice, bool) {
		*k, reply = rules.Adopt(*k, &r, e)
		return nil, true
	})
	if err != nil {
		reply = backend.AdoptReply{}
	}
	reply.Sent, reply.Repeated = sent, lost
	return reply, err
}

// Interim implements backend.Backend.
func (b *Backend) Interim(ctx context.Context, r backend.InterimRequest) (stored bool, err error) {
	_, _, err = b.insist(ctx, b.ends, r.Key, func(k *rules.Key, e rules.Env) (notices []rules.Notice, durable bool) {
		*k, stored, notices = rules.Interim(*k, &r, e)
		return notices, true
	})
	return stored && err == nil, err
}

// Withdraw implements backend.Backend.
func (b *Backend) Withdraw(r backend.WithdrawRequest) { b.cleanups.Withdraw(r) }

// ReleaseLater implements backend.Backend.
func (b *Backend) ReleaseLater(r backend.ReleaseRequest, until time.Time) {
	b.cleanups.ReleaseLater(r, until)
}

// Hurry implements backend.Backend.
func (b *Backend) Hurry(id string) { b.cleanups.Hurry(id) }

// Report implements backend.Backend.
func (b *Backend) Report() { b.cleanups.Report() }

// Route implements backend.Backend. There is one server, so all names are empty.
func (b *Backend) Route(_ context.Context, keys []*backend.Key) []string {
	return make([]string, len(keys))
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return b.o.Name }

// Drain implements backend.Backend.
func (b *Backend) Drain(ctx context.Context) {
	select {
	case <-b.cleanups.Drain():
	case <-ctx.Done():
	}
}

// Close implements backend.Backend.
func (b *Backend) Close() {
	b.stop()
	b.cleanups.Stop()
	b.calls.Close()
	b.ends.Close()
	b.cleanups.Wait()
	b.purger.Wait()
}
