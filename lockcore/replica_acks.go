package lockcore

import (
	"fmt"
	"time"
)

const (
	defaultAckTimeout = 250 * time.Millisecond
	minAckTimeout     = 10 * time.Millisecond
	maxAckTimeout     = 750 * time.Millisecond // a command has backend.CallTimeout, one second
)

// ReplicaAcks makes a grant, a renewal or a record count only when replicas have acknowledged it.
// The zero value waits for none.
//
// Without it, every failover to a replica that lacks a grant can make two holders. With it, two
// holders are possible only after the promotion of a replica that is not one of the N that
// acknowledged. If N is the number of all replicas, that is not possible either. Then an isolated
// primary grants nothing. A replica acknowledges from memory, not from disk.
//
// If too few replicas acknowledge in time:
//
//   - A grant does not count, so its call does not run. The call sends its request again, as when
//     Redis does not reply. Meanwhile other calls find the key busy. When Wait is over, the grant
//     is withdrawn and the error matches ErrReplicaAcks.
//   - A renewal does not count. The lease ends as if Redis were unavailable, and RenewFailed has
//     the reason.
//   - A record is sent again asynchronously while the lease is valid. If too few replicas
//     acknowledge it by then, that is reported as CompletionFailed. Other calls replay the record
//     all the same, because the primary has it.
//
// Two things are not acknowledged. If a failover loses a release, the key stays held until the end
// of its lease, and the rest of MinHold is lost. A hand-off inside the process continues under the
// grant that was acknowledged.
//
// Costs:
//
//   - Each acquire, renewal and record costs one more round trip between the servers, but not
//     between the process and Redis: EVALSHA and WAIT are sent together. An ACL must allow both.
//   - No calls are sent in groups, see Options.NoGroups.
//   - Records have their own connection pool, so that releases do not queue behind them while
//     replicas are unavailable.
type ReplicaAcks struct {
	// N is the number of replicas that must acknowledge. Default 0: none.
	N int
	// Timeout bounds the wait for acknowledgments. Default 250 ms. 10 ms to 750 ms.
	//
	// The wait is also at most three quarters of the client's ReadTimeout, and for a grant at most
	// a tenth of its Lease. So the default needs a Lease of at least 2.5 s to apply in full, and
	// 750 ms needs 7.5 s. Replicas that take 300 ms need a Lease over 3 s. A renewal may wait
	// longer than the grant did. So a key whose renewals would fail is refused from the start.
	Timeout time.Duration
}

func (r ReplicaAcks) validate() error {
	switch {
	case r.N < 0:
		return fmt.Errorf("lockcore: ReplicaAcks.N is %d, must not be negative", r.N)
	case r.N == 0 && r.Timeout != 0:
		return fmt.Errorf("lockcore: ReplicaAcks.Timeout is %v without an N", r.Timeout)
	case r.Timeout != 0 && (r.Timeout < minAckTimeout || r.Timeout > maxAckTimeout):
		return fmt.Errorf("lockcore: ReplicaAcks.Timeout is %v, must be between %v and %v", r.Timeout, minAckTimeout, maxAckTimeout)
	}
	return nil
}

func (r ReplicaAcks) withDefaults() ReplicaAcks {
	if r.N > 0 && r.Timeout == 0 {
		r.Timeout = defaultAckTimeout
	}
	return r
}

// ErrReplicaAcks: the primary has the grant, renewal or record, but too few replicas acknowledged
// it in time. The text of the error says how many.
var ErrReplicaAcks = notRun("lockcore: too few replicas acknowledged")

// replicaAcksError reports how many replicas have acknowledged a grant, a renewal or a record.
type replicaAcksError struct {
	Acked, Wanted int
	// Reason says why Acked is not known. It is empty if Acked is known. It is text, not a wrapped
	// error, because the error that it quotes is of WAIT and not of the grant.
	Reason string
}

func (e *replicaAcksError) Error() string {
	s := fmt.Sprintf("lockcore: %d of %d replicas acknowledged", e.Acked, e.Wanted)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is makes a replicaAcksError match ErrReplicaAcks, ErrUnavailable and ErrNotRun.
func (e *replicaAcksError) Is(target error) bool {
	return target == ErrReplicaAcks || target == ErrUnavailable || target == ErrNotRun
}

// ErrorType names the class for telemetry.
func (e *replicaAcksError) ErrorType() string { return "replica_acks" }
