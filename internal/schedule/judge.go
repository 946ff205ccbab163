package schedule

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// violation is a failed check. It is a panic value inside this package.
type violation struct{ check, text string }

func fail(check, format string, args ...any) {
	panic(violation{check, fmt.Sprintf(format, args...)})
}

// judge derives from the replies and notifications the state that the server must have. It sees the
// reply of each command that runs, even if no process receives it.
type judge struct {
	now       int64
	once      bool
	cluster   bool
	listening func(locker string) bool

	hold      *held
	phase     *phase
	abandoned bool  // a hold was abandoned, and no run has ended since
	keptUntil int64 // the server reports that the key is abandoned at least until then
	ended     map[string]bool
	attempts  int64 // runs of a once key
	anew      bool  // the server has begun to count the runs from 1 again
	counted   int64 // the server keeps attempts at least until then
	token     int64 // the greatest one granted or used
	record    *record

	reserved      string // id
	reservedUntil int64
	coolUntil     int64

	parked      parked
	waiters     []waiter
	queueUntil  int64
	commands    int
	finished    int      // commands that may have added an ended id
	ran, closed []string // calls of operators that ran, and that have their reply
}

// held is the last grant, until its request ends.
type held struct {
	id, locker string
	token, end int64
	revoked    bool
	before     []string // the grants from which the hold was passed on
	answer     string   // the interim answer
}

type record struct {
	id, data string
	until    int64
}

// waiter is a member of the queue.
type waiter struct {
	id, locker string
	share      backend.Share
	since      int64
	lastSent   int64 // when it sent its request last
	maybe      bool  // its process did not listen when the server searched for a waiter
	vague      bool  // it may have entered the queue before since
}

func newJudge(once, cluster bool, listening func(string) bool) judge {
	return judge{once: once, cluster: cluster, listening: listening, ended: map[string]bool{}}
}

// holds reports whether the lease of id is valid.
func (j *judge) holds(id string) bool { return j.live() && j.hold.id == id }

func (j *judge) live() bool { return j.hold != nil && j.now < j.hold.end }

// observe judges a reply. heard are the notifications that the command caused.
func (j *judge) observe(now int64, c *command, r *reply, heard []string) {
	j.now = now
	j.commands++
	if c.repeated || c.op == revoke || c.op == clearKey {
		j.finished++
	}
	var told []string // of the end of a cooldown
	heard = slices.DeleteFunc(slices.Clone(heard), func(message string) bool {
		if message[0] == 'c' {
			told = append(told, message)
		}
		return message[0] == 'c'
	})
	switch c.op {
	case acquire:
		j.acquired(c, c.id, r)
	case renew:
		j.renewed(c, r)
	case release:
		j.released(c, r, heard)
	case rotate:
		j.rotated(c, r, heard)
	case leave:
		j.left(c, r, heard)
	case complete:
		j.completed(c, r, heard)
	case revoke:
		j.revoked(c, r, heard)
	case park:
		j.parks(c, r)
	case unpark:
		j.unparks(c, r)
	case adopt:
		j.adopts(c, r)
	case interim:
		j.answers(c, r)
	case acquireShare:
		j.acquiredShare(c, r, heard)
	case renewShare:
		j.renewedShare(c, r)
	case releaseShare:
		j.releasedShare(c, r, heard)
	default:
	}
	j.cools(c, r, told)
}

func (j *judge) renewed(c *command, r *reply) {
	want := backend.VerdictLost
	if j.holds(c.id) {
		if want = backend.VerdictKept; j.hold.revoked {
			want = backend.VerdictRevoked
		}
	}
	if r.verdict != want {
		fail("A", "the renewal of %s returns %d, want %d", c.id, r.verdict, want)
	}
	if r.verdict == backend.VerdictKept {
		j.hold.end, j.keptUntil, j.counted = max(j.hold.end, j.now+c.lease), j.now+c.retention, j.now+c.retention
		j.keeps(c.retention)
	}
}
