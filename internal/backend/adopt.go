package backend

import "time"

// A process transfers a hold to another process in two steps. The first process extends its lease
// with Extend to the time within which the hold can be adopted, and ends the hold without a
// command. The second process sends an AdoptRequest with the id of that grant. Only the two
// processes have that id.

// AdoptRequest passes a hold to a new grant. A repeat has the same ID and the same terms.
type AdoptRequest struct {
	Key       *Key
	From      string // id of the grant that holds the key
	ID        string // of the new grant: 26 characters, never used before
	Holder    string // see AcquireRequest
	Lease     time.Duration
	Retention time.Duration // see AcquireRequest
}

// AdoptReply is the reply to an AdoptRequest. Sent and Repeated are set with an error too.
type AdoptReply struct {
	Verdict  Verdict   // VerdictLost: From has no valid hold of the key; VerdictRevoked: that hold was revoked
	Sent     time.Time // see AcquireReply
	Repeated bool      // the hold may be adopted although no reply arrived, or a duplicate of the command may still arrive

	// Only with VerdictKept, see AcquireReply. The run of a once key continues, so Attempt,
	// Abandoned and Fingerprint are those of the previous hold.
	Token       int64
	GrantedAt   time.Time
	Attempt     int
	Abandoned   bool
	Fingerprint string
	Parked      bool
}

// InterimRequest stores an interim answer of a once key, and notifies all waiters. Until the hold
// ends, each busy reply contains the answer.
type InterimRequest struct {
	Key     *Key
	ID      string // of the grant that was transferred to another process
	Attempt int    // of that grant
	Answer  []byte
}
