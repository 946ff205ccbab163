package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// ev is an operation of key 0 from call to ret.
func ev(call, ret int64, what what, answer answer, hold int32, token int64) operation {
	return operation{call: call, ret: ret, what: what, answer: answer, hold: hold, token: token}
}

// fine is a history with two holders, a nested run, a refusal and a revocation.
func fine() []operation {
	return []operation{
		ev(0, 2, acquire, yes, 1, 10),
		ev(1, 12, acquire, yes, 2, 11), // it waits meanwhile
		ev(3, 4, enter, yes, 1, 10),
		ev(5, 6, try, busy, 0, 0),
		ev(7, 8, leave, yes, 1, 0),
		ev(9, 10, leave, yes, 1, 0),
		ev(13, 14, revoke, yes, 0, 0),
		ev(15, 16, leave, revoked, 2, 0),
		ev(17, 18, acquire, yes, 3, 500),
		ev(19, 20, extend, yes, 3, 0),
		ev(21, 22, leave, yes, 3, 0),
	}
}

// onceFine is a history of a once key: a run that fails, one that is recorded, a replay.
func onceFine() []operation {
	h := []operation{
		ev(0, 2, claim, yes, 1, 10),
		ev(3, 4, leave, yes, 1, 0),
		ev(1, 6, claim, yes, 2, 20),
		ev(7, 8, complete, yes, 2, 0),
		ev(5, 9, claim, record, 0, 0),
	}
	h[0].attempt, h[2].attempt = 1, 2
	h[4].by, h[4].attempt = 2, 2
	return h
}

// sharesFine is a history of two readers, a writer that waits for them, and a reader after it.
func sharesFine() []operation {
	h := []operation{
		ev(0, 2, acquire, yes, 1, 10),
		ev(1, 3, acquire, yes, 2, 10),
		ev(4, 9, acquire, yes, 3, 20),
		ev(5, 6, leave, yes, 1, 0),
		ev(7, 8, leave, yes, 2, 0),
		ev(10, 11, leave, yes, 3, 0),
		ev(12, 13, acquire, yes, 4, 30),
		ev(14, 15, leave, yes, 4, 0),
	}
	for _, i := range []int{0, 1, 3, 4, 6, 7} {
		h[i].shared = true
	}
	h[5].value, h[6].value, h[7].value = 1, 1, 1
	return h
}

// The checker finds each of these mistakes in histories that are fine without it, and none in
// those.
func TestPlantedViolations(t *testing.T) {
	t.Parallel()
	late := int64(3 * time.Second) // no call waits then, or has waited shortly before
	for _, c := range []struct {
		name  string
		of    func() []operation
		plant func([]operation) []operation
		fine  bool
	}{
		{"nothing", fine, func(h []operation) []operation { return h }, true},
		{"nothing, once", onceFine, func(h []operation) []operation { return h }, true},
		{"two events change places", fine, func(h []operation) []operation {
			h[0].call, h[0].ret, h[5].call, h[5].ret = h[5].call, h[5].ret, h[0].call, h[0].ret
			return h
		}, false},
		{"the second was granted before the first had left", fine, func(h []operation) []operation { h[1].ret = 8; return h }, false},
		{"a duplicate token", fine, func(h []operation) []operation { h[1].token = 10; return h }, false},
		{"a token that shrinks", fine, func(h []operation) []operation { h[8].token = 9; return h }, false},
		{"another token on re-entry", fine, func(h []operation) []operation { h[2].token = 11; return h }, false},
		{"re-entry after the end", fine, func(h []operation) []operation { h[2].call, h[2].ret = 11, 11; return h }, false},
		{"the key is free before the nested run has left", fine, func(h []operation) []operation { h[1].ret = 9; h[5].call, h[5].ret = 10, 11; return h }, false},
		{"revoked without a Revoke", fine, func(h []operation) []operation { h[6].call, h[6].ret = 30, 31; return h }, false},
		{"revoked under the grant before", fine, func(h []operation) []operation { h[10].answer = revoked; return h }, false},
		{"extended although revoked", fine, func(h []operation) []operation { h[9].call, h[9].ret, h[9].hold = 14, 15, 2; h[6].ret = 13; return h }, false},
		{"busy while free", fine, func(h []operation) []operation { return append(h, ev(late, late+1, try, busy, 0, 0)) }, false},
		{"busy on the way to a waiter", fine, func(h []operation) []operation {
			return append(h, ev(late, late+1, try, busy, 0, 0), ev(late, late+9, acquire, yes, 4, 501))
		}, true},
		{"granted while a lost holder's ctx was alive", fine, func(h []operation) []operation {
			return append(h, ev(30, 31, acquire, yes, 4, 501), ev(32, 33, acquire, yes, 5, 502), ev(34, 35, lose, yes, 4, 0), ev(34, 36, leave, lost, 4, 0))
		}, false},
		{"granted after a lost holder's ctx was canceled", fine, func(h []operation) []operation {
			return append(h, ev(30, 31, acquire, yes, 4, 501), ev(31, 32, lose, yes, 4, 0), ev(33, 34, acquire, yes, 5, 502), ev(34, 36, leave, lost, 4, 0))
		}, true},
		{"a late release without an answer", fine, func(h []operation) []operation {
			h[10].ret = never
			return append(h, ev(late, late+1, try, busy, 0, 0), ev(late+2, late+3, acquire, yes, 4, 501))
		}, true},
		{"a second run after the record", onceFine, func(h []operation) []operation { h[2].attempt = 3; return h }, false},
		{"a run that is not counted", onceFine, func(h []operation) []operation { h[2].attempt = 1; return h }, false},
		{"a run of a done key", onceFine, func(h []operation) []operation {
			h = append(h, ev(10, 11, claim, yes, 3, 30))
			h[5].attempt = 3
			return h
		}, false},
		{"another record", onceFine, func(h []operation) []operation { h[4].by = 1; return h }, false},
		{"nothing, shares", sharesFine, func(h []operation) []operation { return h }, true},
		{"a writer beside a reader", sharesFine, func(h []operation) []operation { h[4].call, h[4].ret = 16, 17; return h }, false},
		{"a reader beside a writer", sharesFine, func(h []operation) []operation { h[5].call, h[5].ret = 16, 17; return h }, false},
		{"readers with two tokens", sharesFine, func(h []operation) []operation { h[1].token = 11; return h }, false},
		{"a writer with the token of readers", sharesFine, func(h []operation) []operation { h[2].token = 10; return h }, false},
		{"a reader with the token of a phase that is over", sharesFine, func(h []operation) []operation { h[6].token = 10; return h }, false},
		{"a reader that sees the value before the write", sharesFine, func(h []operation) []operation { h[6].value, h[7].value = 0, 0; return h }, false},
		{"a value that changes below a reader", sharesFine, func(h []operation) []operation { h[3].value = 1; return h }, false},
		{"a reader that is refused beside readers", sharesFine, func(h []operation) []operation {
			h = append(h, ev(late, late+1, try, busy, 0, 0))
			h[7].call, h[7].ret, h[8].shared = late+2, late+3, true
			return h
		}, false},
		{"a writer that is refused beside readers", sharesFine, func(h []operation) []operation {
			h[7].call, h[7].ret = late+2, late+3
			return append(h, ev(late, late+1, try, busy, 0, 0))
		}, true},
		{"a record before the completion", onceFine, func(h []operation) []operation { h[4].ret = 6; return h }, false},
	} {
		check := newChecker(1)
		check.round(c.plant(c.of()))
		if found := len(check.problem) > 0; found == c.fine {
			t.Errorf("%s: %v", c.name, strings.Join(check.problem, "\n"))
		}
	}
}

// A token that repeats one of an earlier round is found.
func TestPlantedInAnotherRound(t *testing.T) {
	t.Parallel()
	check := newChecker(1)
	check.round(fine())
	check.round([]operation{ev(100, 101, acquire, yes, 9, 500), ev(102, 103, leave, yes, 9, 0)})
	if len(check.problem) != 1 {
		t.Error(check.problem)
	}
}

// A lock that is broken is found: keys are deleted while they are held.
func TestBrokenLockIsFound(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	s := redistest.Real(t)
	l, rdb, stop, gone := realLoad(t, s), s.Client(t), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = rdb.Del(t.Context(), "holdfast:2:x:{"+l.names[i%hotKeys]+"}").Err()
			}
		}
	}()
	l.run(64, 50_000, 5000)
	close(stop)
	<-gone
	if len(l.violations()) == 0 {
		t.Errorf("nothing was found in %d operations", l.count.ops)
	} else {
		t.Logf("found after %d operations, among %d: %.300s", l.count.ops, len(l.violations()), l.violations()[0])
	}
}
