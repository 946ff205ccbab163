// Package quorum is a backend on several independent backends, its masters. A request counts when a
// majority of the masters has granted it, so the loss of any minority changes nothing.
//
// The rules, each with the mistake that it prevents:
//
//   - A grant counts from before the first send, and only if a majority replies within its time
//     limit (vote.go). A grant that counts from its reply may outlive the lease of a master.
//   - Its fencing token is the greatest of those that the majority granted. A master with a smaller
//     one is raised to it, and the grant counts when a majority has it (token.go). Every later
//     majority has a master in common with this one, so its token is greater.
//   - A request without a majority is withdrawn from all masters, also from those that did not
//     reply. The engine sends the next one under a new id.
//   - A renewal counts when a majority kept the lease, and never grants it again.
//   - The grants of a restarted master count only when every lease that it may have lost has ended
//     (servers.go).
//   - The remote queue of a key is on one master, its home. It only says whose turn it is: a process
//     that ignores it needs a majority too.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Limits of the time for which a request waits for one master.
const (
	minLimit = 10 * time.Millisecond
	maxLimit = 250 * time.Millisecond
)

// releaseFor is how long a release is repeated on a master that has not confirmed it: the longest
// lease.
const releaseFor = time.Hour

// Master is one of the independent backends.
type Master = backend.Backend

// Backend holds keys on a majority of its masters.
type Backend struct {
	masters  []Master
	servers  *Servers
	majority int
	tokens   tokens

	mu      sync.Mutex
	asks    []sync.WaitGroup // by master: requests whose reply may be late
	closing bool             // no request begins any more; guarded by mu
}

// New returns a Backend on 3, 5 or 7 masters with the same options.
func New(masters []Master, servers *Servers) *Backend {
	return &Backend{masters: masters, servers: servers, asks: make([]sync.WaitGroup, len(masters)), majority: len(masters)/2 + 1} //planted:quorum-majority
}

// Name returns the name with the names of the masters.
func (b *Backend) Name() string {
	return fmt.Sprintf("a majority of %s", strings.Join(b.servers.names, ", "))
}

// Probe connects to all masters. It returns an error if some that reply are not independent primaries.
func (b *Backend) Probe(ctx context.Context) error {
	key := b.Key(backend.KindExclusive, "probe")
	var wrong []error
	ask(b, func(i int) (backend.Status, error) {
		return b.masters[i].Inspect(ctx, &key, backend.NoRecord)
	}, func(_ int, _ backend.Status, err error) bool {
		if errors.Is(err, backend.ErrUnsupported) {
			wrong = append(wrong, err)
		}
		return false
	})
	return errors.Join(wrong...)
}

// Key returns a key. Its stored names are the same on all masters.
func (b *Backend) Key(kind backend.Kind, name string) backend.Key {
	return b.masters[0].Key(kind, name)
}

// Route returns no names: each key is on all masters.
func (b *Backend) Route(_ context.Context, keys []*backend.Key) []string {
	return make([]string, len(keys))
}

// home returns the index of the master that has the remote queue of a key: the first one, from a
// place that the key determines, whose last request did not fail. Processes may disagree for a
// moment, because the queue grants nothing.
func (b *Backend) home(key *backend.Key, failing []error) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key.Stored[0]))
	first := int(h.Sum32() % uint32(len(b.masters))) //nolint:gosec // at most 7
	for i := range failing {
		if at := (first + i) % len(failing); failing[at] == nil {
			return at
		}
	}
	return first
}

// Limit returns how long a request for a lease waits for one master: a twentieth of the lease, so
// that a slow master takes little of it.
func Limit(lease time.Duration) time.Duration { return min(max(lease/20, minLimit), maxLimit) }

// Permanent reports whether a repeat would fail with the same error: on a majority of the masters.
func (b *Backend) Permanent(err error) bool {
	if f, is := errors.AsType[*failure](err); is {
		return f.permanent
	}
	return errors.Is(err, backend.ErrUnsupported)
}

// failure is the error of a request for which no majority replied.
type failure struct {
	names     []string
	errs      []error // by master; nil: it replied
	permanent bool    // a majority has an error that a repeat would get again
}

func (f *failure) Error() string {
	var parts []string
	for i, err := range f.errs {
		if err != nil {
			parts = append(parts, f.names[i]+": "+err.Error())
		}
	}
	return fmt.Sprintf("no majority: %d of %d servers failed: %s", len(parts), len(f.errs), strings.Join(parts, "; "))
}

// Unwrap leaves out ErrUnsupported of a minority, because a repeat may succeed.
func (f *failure) Unwrap() []error {
	var errs []error
	for _, err := range f.errs {
		if err != nil && (f.permanent || !errors.Is(err, backend.ErrUnsupported)) {
			errs = append(errs, err)
		}
	}
	return errs
}

// failure returns the error of a request without a majority. After Close it is ErrClosed.
func (b *Backend) failure(errs []error) error {
	if b.closed() {
		return backend.ErrClosed
	}
	permanent := 0
	for i, err := range errs {
		if err != nil && b.masters[i].Permanent(err) {
			permanent++
		}
	}
	return &failure{names: b.servers.names, errs: errs, permanent: permanent >= b.majority}
}

// ask calls f for each master, in a goroutine each, and passes the results to next in the order of
// their arrival, until next returns true or all have arrived. After Close it calls neither.
//
// A goroutine whose result is not awaited ends by itself, because each request to a master has a time
// limit, and Close waits for it. It may run later than ask returns. So f uses only what the caller
// does not change, and no ctx that the caller cancels, because the master needs the request too. next
// alone, which runs in the caller's goroutine, keeps results.
func ask[T any](b *Backend, f func(i int) (T, error), next func(i int, result T, err error) (decided bool)) {
	askUntil(context.Background(), b, nil, f, next)
}

// askUntil is ask. When ctx ends or late is received, next gets an error for each master that has not
// replied.
func askUntil[T any](ctx context.Context, b *Backend, late <-chan time.Time, f func(i int) (T, error), next func(i int, result T, err error) (decided bool)) {
	type answer struct {
		i      int
		result T
		err    error
	}
	answers := make(chan answer, len(b.masters)) // so that no goroutine waits for a receiver
	if !b.begin() {
		return
	}
	for i := range b.masters {
		go func() {
			defer b.asks[i].Done()
			result, err := f(i)
			answers <- answer{i, result, err}
		}()
	}
	missing := make([]bool, len(b.masters))
	for i := range missing {
		missing[i] = true
	}
	for range b.masters {
		var err error
		select {
		case a := <-answers:
			if missing[a.i] = false; next(a.i, a.result, a.err) {
				return
			}
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-late:
			err = errLate
		}
		for i, is := range missing {
			if is {
				var none T
				next(i, none, err)
			}
		}
		return
	}
}

// errLate is the result of a master that has not replied in time. It may have no connection, and
// connecting has a longer limit than a request.
var errLate = fmt.Errorf("no reply: %w", os.ErrDeadlineExceeded)

// detached returns the ctx of a request to a master: with the deadline of ctx, but not canceled with it.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if ctx = context.WithoutCancel(ctx); !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end)
}

func (b *Backend) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing
}

// heard records the result of a request to a master, unless Close has ended it. A master that cannot
// read the data of one key has replied.
func (b *Backend) heard(i int, sent time.Time, err error) {
	if errors.As(err, new(*backend.DataError)) {
		err = nil
	}
	if err == nil || !errors.Is(err, backend.ErrClosed) && !b.closed() {
		b.servers.heard(i, sent, err)
	}
}

// begin adds a request to each master, unless the backend is closed or drained.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false
	}
	for i := range b.asks {
		b.asks[i].Add(1)
	}
	return true
}

// end lets no request begin any more.
func (b *Backend) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closing = true
}

// Withdraw removes a request from all masters. Each repeats it until it is confirmed.
func (b *Backend) Withdraw(r backend.WithdrawRequest) {
	for _, m := range b.masters { //planted:quorum-withdrawn
		m.Withdraw(r)
	}
}

// Hurry makes the withdrawal the next one on all masters.
func (b *Backend) Hurry(id string) {
	for _, m := range b.masters {
		m.Hurry(id)
	}
}

// ReleaseLater releases on all masters.
func (b *Backend) ReleaseLater(r backend.ReleaseRequest, until time.Time) {
	for _, m := range b.masters {
		m.ReleaseLater(r, until)
	}
}

// Report reports the withdrawals and releases that each master has given up.
func (b *Backend) Report() {
	for _, m := range b.masters {
		m.Report()
	}
}

// drainTime is how long Drain waits for masters that do not reply.
const drainTime = backend.CallTimeout

// Drain lets no request begin any more. It waits until a majority of the masters, and each other one
// whose last request did not fail, has replied to all requests and confirmed all withdrawals and
// releases. After drainTime it waits for one of the two, or until ctx ends: what a master that does not
// reply still grants ends with its lease.
func (b *Backend) Drain(ctx context.Context) {
	b.end()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	confirmed := make(chan int, len(b.masters))
	for i := range b.masters {
		wg.Go(func() {
			b.drain(ctx, i)
			confirmed <- i
		})
	}
	n, awaited, away := 0, len(b.masters), b.servers.failed()
	for _, err := range away {
		if err != nil {
			awaited--
		}
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	for late := false; ; {
		most, well := n >= b.majority, awaited == 0
		if most && well || late && (most || well) {
			return
		}
		select {
		case i := <-confirmed:
			if n++; away[i] == nil {
				awaited--
			}
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return
		}
	}
}

// drain waits until master i has replied to all requests and confirmed all withdrawals and releases, or
// until ctx ends.
func (b *Backend) drain(ctx context.Context, i int) {
	replied := make(chan struct{})
	go func() { // ends with the requests
		b.asks[i].Wait()
		close(replied)
	}()
	select {
	case <-replied: // a release that failed has been added to the withdrawals and releases
	case <-time.After(drainTime): // List has no time limit
	case <-ctx.Done():
		return
	}
	b.masters[i].Drain(ctx)
}

// Close closes all masters, and waits for the requests in flight.
func (b *Backend) Close() {
	b.end()
	var wg sync.WaitGroup
	for _, m := range b.masters {
		wg.Go(m.Close)
	}
	wg.Wait()
	for i := range b.asks {
		b.asks[i].Wait()
	}
}
