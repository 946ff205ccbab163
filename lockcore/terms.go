package lockcore

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	// NoWait as Terms.Wait refuses the call at once if another holder has the key. If another call
	// of this process has sent a request for the key, the call first waits for the reply to that
	// request.
	NoWait time.Duration = -1
	// Forever as Terms.Wait waits until the key is acquired, ctx ends or the Locker is closed. Set
	// it explicitly: it is not a default.
	Forever time.Duration = math.MaxInt64

	defaultWait  = 2 * time.Second
	defaultLease = 30 * time.Second
	minLease     = time.Second
	maxLease     = time.Hour
	maxWait      = 24 * time.Hour
	maxMaxHold   = 30 * 24 * time.Hour
	maxMinHold   = 24 * time.Hour
	minStall     = 100 * time.Millisecond
	maxWaiting   = 1_000_000
	maxNameLen   = 128
)

// Terms are the conditions of one acquisition. A zero field takes its value from Options.Terms or,
// if that is zero too, the default given here. A call cannot unset a field of Options.Terms. It can
// override a limit with a very long duration, MinHold with 1 ns, and MaxWaiting with 1,000,000.
type Terms struct {
	// Name is the class of the key in spans and metrics: "account" for "account:42". It must be of
	// low cardinality. At most 128 bytes. Default: "".
	Name string
	// Wait bounds the time that the call waits while another holder has the key, or while Redis is
	// unavailable. Default: 2 s. 1 ns to 24 h, NoWait or Forever. A deadline of ctx applies too.
	//
	// If Redis does not reply, the call sends at least two requests before it returns
	// ErrUnavailable. If Wait is shorter than 2.5 s, as by default, that can take up to 2.5 s. It
	// can take one second more if new connections hang.
	Wait time.Duration
	// MaxWaiting bounds how many calls of this Locker wait for one key. If that many wait when the
	// call begins, the call fails with a *BusyError at once. If the Locker does not know the holder
	// yet, the call first waits for the reply to the request under way. It is refused only if no
	// place is free after that reply. Default: none. 1 to 1,000,000.
	//
	//   - The calls in the local queue count. The call that waits for another process counts too.
	//     Holds do not count.
	//   - The rule applies once to each call, with the MaxWaiting of that call. Calls that arrive
	//     later do not cause its refusal.
	//   - Nested calls do not count and are not refused. If a nested call has to compete for the
	//     key, the rule applies to it as to a new call.
	//   - Once keys have the same rule. A refused call gets no record, even if the run under way
	//     completes.
	MaxWaiting int
	// Lease is how long the key stays held after the grant and after each renewal. Default: 30 s.
	// 1 s to 1 h. The watchdog renews the lease after about a third of this time, or sooner if
	// replies are slow. If the holder dies, the key is free after at most this time, unless Extend
	// has set a later end. The data of that hold remains for at least a day more.
	//
	// Choose a Lease longer than the longest pause of a process (CPU throttling, a migrated
	// machine). After a longer pause two handlers may run.
	Lease time.Duration
	// MaxHold bounds one hold. After it the handler's ctx is canceled with ErrMaxHold, and the
	// lease is no longer renewed. So the key is free at most one lease later, even if the handler
	// hangs. Default: none. Up to 30 days.
	MaxHold time.Duration
	// MinHold keeps the key from other calls for at least this long after the hold began, even if
	// the handler returns sooner, as ShedLock's lockAtLeastFor does. After the handler the key is
	// cooling for the rest of that time: neither held nor abandoned. Default: none. Up to 24 h.
	//
	//   - Other calls for a cooling key wait or fail with ErrBusy, also the retry of a run that
	//     failed. Clear frees it.
	//   - A key whose lease ended by Complete or Abandon is not cooling.
	//   - If the process dies, the key stays held until its lease ends, and is not cooling. The
	//     same applies if Redis is unavailable from the release to the end of the lease.
	MinHold time.Duration
	// Stall ends a hold whose handler has not called [Beat] for this long. The handler's ctx is
	// canceled with ErrStalled, and the lease is no longer renewed. So the key is free at most one
	// lease later. Default: none. 100 ms to 30 days.
	//
	// Stall detects a hung handler sooner than MaxHold does. The time that the handler waits for
	// another key counts too. If Options.Terms sets Stall, every handler must call Beat.
	Stall time.Duration
}

// Validate reports every problem of t at once. Each message names the field, its value and the
// bound. [New] and [Locker.Acquire] call it. Call it for settings that come from a file.
func (t Terms) Validate() error { return t.check() }

// check is Validate without the copy of t, which would stay on the stack of a call that waits.
func (t *Terms) check() error {
	var errs []error
	if len(t.Name) > maxNameLen {
		errs = append(errs, fmt.Errorf("lockcore: Terms.Name is %d bytes long, must be at most %d bytes", len(t.Name), maxNameLen))
	}
	if t.Wait < 0 && t.Wait != NoWait || t.Wait > maxWait && t.Wait != Forever {
		errs = append(errs, badTerm("Wait", t.Wait, 0, fmt.Sprint(maxWait)+", NoWait or Forever"))
	}
	if t.MaxWaiting < 0 || t.MaxWaiting > maxWaiting {
		errs = append(errs, fmt.Errorf("lockcore: Terms.MaxWaiting is %d, must be between 0 and %d", t.MaxWaiting, maxWaiting))
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

// fill sets the zero fields of t from d.
func (t *Terms) fill(d *Terms) {
	t.Name = cmp.Or(t.Name, d.Name)
	t.Wait = cmp.Or(t.Wait, d.Wait)
	t.MaxWaiting = cmp.Or(t.MaxWaiting, d.MaxWaiting)
	t.Lease = cmp.Or(t.Lease, d.Lease)
	t.MaxHold = cmp.Or(t.MaxHold, d.MaxHold)
	t.MinHold = cmp.Or(t.MinHold, d.MinHold)
	t.Stall = cmp.Or(t.Stall, d.Stall)
}

var defaultTerms = Terms{Wait: defaultWait, Lease: defaultLease}

// margin is how much sooner a lease ends in this process than on the server. It covers clocks that
// run at different rates.
func margin(lease time.Duration) time.Duration { return lease/100 + 5*time.Millisecond }

// stopMargin is how long before that end the ctx of the handler is canceled, so that the handler
// has time to stop.
func stopMargin(lease time.Duration) time.Duration { return lease / 10 }

// usable is how long the ctx of a lease lives, from the time when its acquire or renewal was sent.
func usable(lease time.Duration) time.Duration { return lease - margin(lease) - stopMargin(lease) }
