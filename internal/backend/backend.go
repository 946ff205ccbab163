// Package backend is the interface between the engine in package lockcore and the servers that
// store the keys. It is not stable and not for implementation outside this module.
//
// ARCHITECTURE.md defines the words. Package backendtest has the tests that each backend must pass.
package backend

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"
)

const (
	// CallTimeout bounds every command. A command that has no reply by then may still take effect.
	CallTimeout = time.Second
	// TokensPerGrant is the number of fencing tokens of one grant. AcquireReply.Token is the first
	// of them.
	TokensPerGrant = 512
	// ReserveTime is how long a released key is kept for the first process of the remote queue.
	ReserveTime = 500 * time.Millisecond
	// QueueTTL is how long the remote queue of a key outlives its last request.
	QueueTTL = time.Minute
	// WaitsTTL is how long a key remembers the Waits of a process.
	WaitsTTL = 15 * time.Second
	// FreeTTL is how long a free key remembers its last token. It does so after Clear, and after
	// the release of an exclusive key whose token the clock may not have passed.
	FreeTTL = time.Minute
	// ParkedTTL is the least time for which a free key remembers that it may have parked entries.
	ParkedTTL = 10 * time.Minute
	// WokenTime is how long an entry counts as woken after it was marked.
	WokenTime = 10 * time.Second
)

// Backend stores keys. Its methods are safe for concurrent use.
//
// A method that sends a command returns within CallTimeout, or earlier if ctx ends, unless its
// comment says otherwise. A command that got no reply may still take effect. Then Repeated is set,
// and the same request may be sent again.
type Backend interface {
	// Key returns a key with its stored names. It sends no command.
	Key(kind Kind, name string) Key

	// Acquire requests a key. If an earlier request for the key may have been granted and was
	// withdrawn, Acquire first waits until that withdrawal is confirmed. Otherwise the request
	// could meet an unused grant of this process.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)
	// Renew extends leases, and returns a reply for each. It returns no later than the end of ctx.
	Renew(ctx context.Context, rs []RenewRequest) []RenewReply
	// Extend renews one lease and does not wait for other renewals. If no reply arrives, it sends
	// the request again. It also returns the time of the last send. With a Token it prepares Adopt.
	Extend(ctx context.Context, r RenewRequest) (RenewReply, time.Time)
	// Release ends a hold. If r.Next is set, it also acquires the key again in the same step. The
	// end of ctx does not cancel it.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Spend takes the cost of a rate from a key without waiting. If no reply arrives, it sends the
	// request again, so that the cost may be taken twice.
	Spend(ctx context.Context, key *Key, rate Rate) error
	// Complete ends the hold of a once key and stores its record.
	Complete(ctx context.Context, r CompleteRequest) (ReleaseReply, error)

	// Adopt passes the hold of one grant to a new grant with greater tokens. If no reply arrives,
	// it sends the request again.
	Adopt(ctx context.Context, r AdoptRequest) (AdoptReply, error)
	// Interim stores an interim answer, unless the hold that it belongs to has ended. If no reply
	// arrives, it sends the request again.
	Interim(ctx context.Context, r InterimRequest) (stored bool, err error)

	// Withdraw removes a request, or a grant under which no hold began: its queue entry,
	// reservation or grant. It returns at once. The backend retries the withdrawal until it is
	// confirmed.
	Withdraw(r WithdrawRequest)
	// Hurry makes an unconfirmed withdrawal the next one to be sent, because a notification for the
	// request has arrived.
	Hurry(id string)
	// ReleaseLater releases without waiting for the reply. It returns at once. The backend retries
	// the release until the time until.
	ReleaseLater(r ReleaseRequest, until time.Time)
	// Report calls Options.CleanupsFailed for the withdrawals and releases that the backend has
	// given up. The caller must hold no mutex.
	Report()

	// Inspect returns the state of a key. If no reply arrives, it sends the request again.
	Inspect(ctx context.Context, key *Key, record RecordPart) (Status, error)
	// List yields the keys that match r, in no particular order. Only ctx bounds its time.
	List(ctx context.Context, r ListRequest) iter.Seq2[ListEntry, error]
	// Revoke marks the hold of a key, so that its renewals fail, and notifies the holder. It reports
	// whether r let it. If no reply arrives, it sends the request again.
	Revoke(ctx context.Context, r RevokeRequest) (revoked bool, err error)
	// Clear frees a key that is not held and forgets its record. If no reply arrives, it sends the
	// request again.
	Clear(ctx context.Context, r ClearRequest) (ClearReply, error)
	// ForceClear ends the lease of a hold, as if it had expired. It notifies the holder and the
	// first process of the remote queue. If no reply arrives, it sends the request again.
	ForceClear(ctx context.Context, r ForceClearRequest) (ForceClearReply, error)

	// Pause lets no request for an exclusive key be granted for d, or ends that if d is 0. What is held
	// stays held. Of two pauses the one that ends later counts. reason is not empty. If no reply
	// arrives, Pause sends the request again.
	Pause(ctx context.Context, key *Key, d time.Duration, reason string) error
	// Restrict bounds the limit and the rate of the requests for an exclusive key, or ends that if r.For
	// is 0. What is held stays held. It replaces a restriction. If no reply arrives, Restrict sends the
	// request again.
	Restrict(ctx context.Context, key *Key, r Restriction) error

	// Park adds an entry to the parked entries of a key that another request has. If the key is
	// free or done, Park changes nothing, and the caller requests the key again. If no reply
	// arrives, Park sends the request again.
	Park(ctx context.Context, r ParkRequest) (ParkReply, error)
	// Unpark removes entries, and marks the oldest of the others as woken. If no reply arrives, it
	// sends the request again. The caller wakes the tasks of the entries in the reply.
	Unpark(ctx context.Context, r UnparkRequest) (UnparkReply, error)
	// CallParkingLocker notifies the Locker that parked an entry of the key most recently. It
	// returns the number of subscribers that received the notification. In a Cluster it counts only
	// the subscribers of one node.
	CallParkingLocker(ctx context.Context, key *Key) (received int, err error)

	// Order orders the triggers of a key. If no reply arrives, it sends the request again.
	Order(ctx context.Context, r TriggerRequest) (TriggerReply, error)

	// Listen passes the notifications for Options.Locker to on, one at a time, until ctx ends or
	// the subscription ends. on must not block.
	Listen(ctx context.Context, on func(Notification))
	// Route returns for each key the name of the server that stores it, so that a slow server
	// delays only its own keys. A name is empty if the server is not known, or if there is only one
	// server.
	Route(ctx context.Context, keys []*Key) []string
	// Permanent reports whether a repeat would fail with the same error. err is an error of one of
	// the methods above.
	Permanent(err error) bool
	// Name returns the name of the backend for users, with its limits.
	Name() string

	// Drain waits until all withdrawals and releases are confirmed, or until ctx ends. When all are
	// confirmed, the backend accepts no new ones.
	Drain(ctx context.Context)
	// Close gives up unconfirmed withdrawals and releases, ends the commands in flight, and waits
	// for the goroutines of the backend.
	Close()
}

// Options are the options that every backend has.
type Options struct {
	Locker string // id of the Locker in remote queues, a UUID
	// Closing is closed when Close of the Locker begins. From then on no Acquire waits for a
	// withdrawal.
	Closing <-chan struct{}
	// CleanupsFailed receives the number of withdrawals and releases that were given up, and the
	// last error.
	CleanupsFailed func(n int, err error)
	// Grouped receives the number of calls of each group that was sent in one write, and how long
	// the first of them waited.
	Grouped func(calls int, waited time.Duration)
	// Server receives the name of a server that begins to fail, of several that the backend has, and
	// its error; when it replies again, a nil error.
	Server func(name string, err error)
	// Misconfigured receives, once, a mistake in the setup that costs time only. May be nil.
	Misconfigured func(problem string)
}

// ServerInfo is what a server says of itself on a new connection.
type ServerInfo struct {
	RunID   string        // another one after each start
	Refused string        // why it is not one of several independent servers; empty: it may be
	Age     time.Duration // since its start, at least
	Durable bool          // its last start has lost no write that it had confirmed
}

// Kind is one of the two namespaces of keys.
type Kind uint8

// The kinds of keys.
const (
	KindExclusive Kind = iota + 1
	KindOnce
)

// Key is the name of what is locked, with the names of its data in the backend.
type Key struct {
	Kind   Kind
	Name   string
	Stored [2]string // names of its data and of its remote queue
}

// Share is the part of a key that a request needs beside other requests. The zero value means the
// key alone.
//
// All shares that are held at the same time form a phase. A hold of the key alone is before or
// after a phase, never beside it.
type Share struct {
	Limit  int  // maximum sum of the weights of all shares, including this one; Unlimited: any sum
	Weight int  // 1 to Limit
	Rate   Rate // zero: none; with Limit 0 the request is only admitted, and holds nothing
}

// Rate bounds how often calls of a key begin: at most N + Burst - 1 in any Per, if each has Cost 1.
type Rate struct {
	N, Burst, Cost int
	Per            time.Duration
}

// Alone reports whether the request is for the key alone.
func (s Share) Alone() bool { return s.Limit == 0 && s.Rate.N == 0 }

// Throttled reports whether the request is only admitted, and holds nothing.
func (s Share) Throttled() bool { return s.Limit == 0 && s.Rate.N > 0 }

// Text returns the text of a request in queues and sets, and in the scripts: its id, and its share if
// it has one.
func (s Share) Text(id string) string {
	switch r := s.Rate; {
	case s.Alone():
		return id
	case r.N > 0:
		return fmt.Sprintf("%s/%d/%d/%d/%d/%d/%d/", id, s.Limit, s.Weight, r.N, r.Per.Microseconds(), r.Burst, r.Cost)
	}
	return fmt.Sprintf("%s/%d/%d/", id, s.Limit, s.Weight)
}

// ParseShare returns the share of a text that Text has returned. For another text it returns the zero
// value.
func ParseShare(text string) (s Share) {
	_, text, _ = strings.Cut(text, "/")
	var per int64
	switch n, _ := fmt.Sscanf(text, "%d/%d/%d/%d/%d/%d/", &s.Limit, &s.Weight, &s.Rate.N, &per, &s.Rate.Burst, &s.Rate.Cost); n {
	case 2:
		s.Rate = Rate{}
	case 6:
		s.Rate.Per = time.Duration(per) * time.Microsecond
	default:
		return Share{}
	}
	return s
}

// Unlimited is the Limit of a share that can be held beside any number of others.
const Unlimited = 999_999_999

// AcquireRequest requests a key. A repeat has the same ID and the same terms.
type AcquireRequest struct {
	Key         *Key
	ID          string // 26 characters, never used before; it becomes the id of the grant
	Holder      string // text that describes the caller
	Lease       time.Duration
	Retention   time.Duration // how long the data of the key outlives the send if nothing renews the lease, and at least after OutcomeAbandoned
	Fingerprint string        // of the payload; empty: not compared
	AtMostOnce  bool          // of a once key: refuse the request if the key is abandoned
	Queue       bool          // enter the remote queue if the key is busy
	First       bool          // this ID was not sent before
	Timeout     time.Duration // how long to wait for the reply
	Share       Share         // zero: the key alone
	Calls       int           // of a Throttled share: how many calls of this process wait with the same share, at least 1
	Floor       int64         // the least token of the grant, not for a share; 0: no bound. With a floor no grant is Plain
	Home        int           // Home of the reply with Withdraw before; 0: none
	Waits       Waits         // of this process, if Queue is set
}

// Waits is what a process says of its calls that wait for a key. It counts until the process says it
// again, for WaitsTTL, and while a request of the process is in the remote queue.
type Waits struct {
	Calls  int           // 0: the process says nothing
	Oldest time.Duration // for how long the oldest of them has waited
}

// Outcome is the result of an AcquireRequest.
type Outcome uint8

// The outcomes. OutcomeBusy and OutcomeEnded are not final.
const (
	OutcomeBusy      Outcome = iota // another holder has the key, or it is reserved or cooling
	OutcomeGranted                  // the request has the key
	OutcomeDone                     // the once key has a record
	OutcomeMismatch                 // the key is held, done or abandoned with another fingerprint
	OutcomeAbandoned                // an AtMostOnce request found an abandoned key
	OutcomeEnded                    // the request is over: its grant has ended or was revoked, or it was withdrawn
	OutcomeAdmitted                 // Calls calls of a Throttled share may begin, and nothing is held
)

// AcquireReply is the reply to an AcquireRequest. Sent and Repeated are set with an error too.
type AcquireReply struct {
	Outcome  Outcome
	Sent     time.Time // before the command was sent; the validity of a grant counts from it
	Received time.Time // after the reply arrived; zero: unknown
	Repeated bool      // a duplicate of the command may still arrive, or may have arrived

	Token     int64     // Granted: the first of TokensPerGrant tokens
	GrantedAt time.Time // Granted: by the backend's clock
	Attempt   int       // Granted: number of the run of a once key, from 1; Done: of the recorded run; Abandoned: of the abandoned run
	Abandoned bool      // Granted: the previous hold was abandoned
	Plain     bool      // Granted: the backend stores no other data for the key, see ReleaseRequest.Plain
	Phase     string    // Granted, for a share: id of the phase; all shares of a phase have the same Token

	Calls int           // Admitted: how many calls may begin
	Rest  int           // Admitted, Granted with a rate: the cost that calls may have now
	Reset time.Duration // Admitted, Granted with a rate: until they may have 1 more

	Locker    string        // Busy: of the current hold
	Holder    string        // Busy: of the current hold, empty if the key is only reserved or cooling; Abandoned: of the abandoned hold
	HeldFor   time.Duration // Busy, Abandoned: since that hold began
	Remaining time.Duration // Busy: of the lease, the reservation or the cooldown
	Queue     int           // Busy: number of processes in the remote queue
	Shares    int           // Busy: sum of the weights of the shares that are held or cool; 0: the key is not shared
	Withdraw  bool          // Busy: a server may have granted the request, so withdraw it, and send the next one under a new id
	Home      int           // Withdraw: for the next request; the backend alone knows what it means
	RetryIn   time.Duration // Busy: when to send the next request if nothing else causes it; 0: Remaining decides
	Place     int           // Busy: if the key or one of its shares cools, or the rate decides: 1 for the first request of the queue, 2 for any other
	Paused    string        // Busy: the reason of a pause, which keeps the request waiting for Remaining; empty: none
	Exact     bool          // Busy: the rate decides, and Remaining is the time until the turn of the request

	Fingerprint string // Busy, Done
	Record      []byte // Done; Busy: the interim answer, if there is one
	IsDone      bool   // Mismatch: the key is done
	Parked      bool   // Granted, Done: the key may have parked entries
}

// RenewRequest extends a lease: it lasts at least Lease from now. It never shortens a lease and
// never revives an expired one.
type RenewRequest struct {
	Key       *Key
	ID        string
	Lease     time.Duration // 0: only read whether the lease is kept
	Retention time.Duration // see AcquireRequest
	Token     int64         // of the hold that began since the last renewal; 0: none began
	Holder    string        // of that hold
	Share     Share
}

// Verdict is the result of a RenewRequest.
type Verdict uint8

// The verdicts.
const (
	VerdictLost     Verdict = iota // another request has the key, or no request has it
	VerdictKept                    // the lease is extended
	VerdictRevoked                 // the hold was revoked
	VerdictReplaced                // the hold was revoked for a newer one
)

// RenewReply is the reply to a RenewRequest: a verdict, or an error.
type RenewReply struct {
	Verdict Verdict
	Err     error
}

// ReleaseRequest ends a hold. A repeat has the same fields, but Repeated is set.
type ReleaseRequest struct {
	Key       *Key
	ID        string
	Token     int64         // the greatest token used under the grant
	Retention time.Duration // how long the data of the free or abandoned key is kept
	Abandon   bool          // the outcome of the run is unknown
	CoolUntil time.Time     // no request gets the key before this time
	Repeated  bool          // a duplicate of the acquire, or of this request, may still arrive
	Share     Share         // if set, Token, Abandon, Plain and Next are not used
	Plain     bool          // the grant was Plain, and the clock of the backend is past Token: all data may be deleted, except the runs of a once key
	Next      *AcquireRequest
}

// ReleaseReply is the reply to a ReleaseRequest or a CompleteRequest. Repeated is set with an error
// too.
type ReleaseReply struct {
	Released bool         // false: another hold has the key, or no hold has it
	Repeated bool         // a duplicate of the command may still arrive, or may have arrived
	Parked   bool         // the hold has ended, no request has the key, and the key may have parked entries
	Next     AcquireReply // its Sent and Repeated are set with an error too
}

// CompleteRequest ends the hold of a once key and stores its record. It also succeeds after the
// lease expired, provided that no other hold has begun.
type CompleteRequest struct {
	Key      *Key
	ID       string
	Token    int64
	Record   []byte
	Keep     time.Duration // of the record
	Repeated bool          // see ReleaseRequest
	Plain    bool          // the grant was Plain; ignored if Repeated
}

// WithdrawRequest removes a request that will not run.
type WithdrawRequest struct {
	Key       *Key
	ID        string
	Retention time.Duration // how long the data of the free key is kept
	Granted   bool          // the request may have been granted: the next request for the key waits for this withdrawal
	Repeated  bool          // a duplicate of the acquire may still arrive
	Share     Share
}

// Event is the kind of a Notification.
type Event uint8

// The events. A notification proves nothing, because any client may have sent it. So the receiver
// sends a request to the backend.
const (
	EventSubscribed Event = iota // the subscription is up, for the first time or after a gap in which notifications were lost
	EventTurn                    // the key was reserved for the request, or is done
	EventRevoked                 // the hold of the request was revoked
	EventWake                    // a parked task of the key is to be woken
	EventCooling                 // the request is the first of the queue, and a cooldown that it waits for ends after In
)

// Notification is a message to a process.
type Notification struct {
	Event   Event
	Request string        // id of the request or grant
	Kind    Kind          // EventWake: of the key
	Name    string        // EventWake: of the key
	In      time.Duration // EventCooling: rest of the cooldown
}
