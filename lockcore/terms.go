package lockcore

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	// NoWait as Terms.Wait does not wait for another holder and does not queue. If another call of this process is asking Redis
	// for the key, it waits for that answer.
	NoWait time.Duration = -1
	// Forever as Terms.Wait waits until the key is ours or ctx ends. It must be written; it is never a default.
	Forever time.Duration = math.MaxInt64

	defaultWait  = 2 * time.Second
	defaultLease = 30 * time.Second
	minLease     = time.Second
	maxLease     = time.Hour
	maxWait      = 24 * time.Hour
	maxMaxHold   = 30 * 24 * time.Hour
	maxMinHold   = 24 * time.Hour
	minStall     = 100 * time.Millisecond
	maxNameLen   = 128
)

// Terms are the conditions of one acquisition. A zero field means: as the Locker's own Terms (Options.Terms), and where
// that is zero too, the default named here. So what the Locker's Terms set cannot be unset for a call, only be made very long or, MinHold, 1 ns.
type Terms struct {
	// Name stands for the class of key in spans and metrics: "account" for "account:42". It must be of low
	// cardinality, at most 128 bytes. Default: "".
	Name string
	// Wait bounds the time spent in line while another holder has the key, or while Redis is away. Default: 2 s.
	// NoWait does not wait for a holder, Forever waits as long as ctx allows. Else 1 ns to 24 h. If Redis does
	// not answer, the call sends at least two requests before it returns ErrUnavailable. That can take up to 2.5 s even if
	// Wait is shorter, and a second more if new connections hang. A deadline of ctx is always kept.
	Wait time.Duration
	// Lease is how long the key stays ours without a sign of life. The watchdog renews it at a third of this, and a
	// dead holder's key is free after at most this. Choose it longer than the longest pause of a process (CPU throttling, a
	// migrated machine): after a longer one two may run. Default: 30 s. 1 s to 1 h.
	Lease time.Duration
	// MaxHold bounds one hold: after it the handler's ctx is canceled with ErrMaxHold and nothing is renewed any
	// more, so that the key is free one lease later even if the handler hangs. Default: none. Up to 30 days.
	MaxHold time.Duration
	// MinHold keeps the key from others for at least this long after it was granted, however soon the handler returns, as ShedLock's
	// lockAtLeastFor does: what is done cannot be begun again in the next moment. Then the key is parked, neither held nor
	// abandoned; other calls wait for it, or are busy, the retry of a failed run too, and Clear frees it. A once key that is completed
	// needs no parking, and one whose run said nothing of its outcome (Abandon) is not parked. A process that dies, or has no Redis when it
	// wants to release, leaves its lease, no more. Default: none. Up to 24 h.
	MinHold time.Duration
	// Stall ends a hold whose handler has not called [Beat] for this long: its ctx is canceled with ErrStalled and nothing is
	// renewed any more, so that the key is free one lease later. It finds a handler that hangs sooner than MaxHold. The time that
	// the handler waits for another key counts too, unless it calls Beat meanwhile. As one of Options.Terms it ends every handler that never calls Beat. Default: none.
	// 100 ms to 30 days.
	Stall time.Duration
	// NoRenew leaves the lease fixed: no watchdog keeps it, it ends after Lease unless Extend is called.
	NoRenew bool
}

// Validate reports every problem of t at once; each names the field, its value and the bound. [New] and
// [Locker.Acquire] call it; it serves settings that come from a file.
func (t Terms) Validate() error { return t.check() }

// check is Validate without a copy of t on the stack of a call that waits.
func (t *Terms) check() error {
	var errs []error
	if len(t.Name) > maxNameLen {
		errs = append(errs, fmt.Errorf("lockcore: Terms.Name is %d bytes long, must be at most %d bytes", len(t.Name), maxNameLen))
	}
	if t.Wait < 0 && t.Wait != NoWait || t.Wait > maxWait && t.Wait != Forever {
		errs = append(errs, badTerm("Wait", t.Wait, 0, fmt.Sprint(maxWait)+", NoWait or Forever"))
	}
	if t.Lease != 0 && (t.Lease < minLease || t.Lease > maxLease) {
		errs = append(errs, badTerm("Lease", t.Lease, minLease, maxLease))
	}
	if t.MaxHold < 0 || t.MaxHold > maxMaxHold {
		errs = append(errs, badTerm("MaxHold", t.MaxHold, 0, maxMaxHold))
	}
	if t.MinHold < 0 || t.MinHold > maxMinHold {
		errs = append(errs, badTerm("MinHold", t.MinHold, 0, maxMinHold))
	}
	if t.Stall != 0 && (t.Stall < minStall || t.Stall > maxMaxHold) {
		errs = append(errs, badTerm("Stall", t.Stall, minStall, maxMaxHold))
	}
	return errtext.Join(errs...)
}

func badTerm(field string, d, least time.Duration, most any) error {
	low := "0"
	if least != 0 {
		low = least.String()
	}
	return fmt.Errorf("lockcore: Terms.%s is %v, must be between %s and %v", field, d, low, most)
}

// fill fills what t leaves open from d.
func (t *Terms) fill(d *Terms) {
	t.Name = cmp.Or(t.Name, d.Name)
	t.Wait = cmp.Or(t.Wait, d.Wait)
	t.Lease = cmp.Or(t.Lease, d.Lease)
	t.MaxHold = cmp.Or(t.MaxHold, d.MaxHold)
	t.MinHold = cmp.Or(t.MinHold, d.MinHold)
	t.Stall = cmp.Or(t.Stall, d.Stall)
	t.NoRenew = t.NoRenew || d.NoRenew
}

var defaultTerms = Terms{Wait: defaultWait, Lease: defaultLease}

// margin is by how much the local idea of a lease is shorter than the server's, for clocks that run at different rates.
func margin(lease time.Duration) time.Duration { return lease/100 + 5*time.Millisecond }

// stopMargin is how long before that the handler's ctx is canceled, so that it has time to stop.
func stopMargin(lease time.Duration) time.Duration { return lease / 10 }

// usable is how long after the send of its acquire or renewal a lease keeps its ctx alive.
func usable(lease time.Duration) time.Duration { return lease - margin(lease) - stopMargin(lease) }
