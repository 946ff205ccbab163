package chaos_test

import (
	"os"

	"github.com/holdfast-go/holdfast/internal/process"
)

// The kinds of lines.
const (
	opReady    = "ready"    // the worker's calls begin
	opHold     = "hold"     // a hold begins: a read of its register
	opValid    = "valid"    // the hold is still valid
	opEffect   = "effect"   // its last act: a write to the register; Valid is 0 if it was over before
	opWaiting  = "waiting"  // a call waits for key
	opGranted  = "granted"  // the Observer was notified that this process has the once key
	opBegun    = "begun"    // the first act of a run of a once key
	opEnded    = "ended"    // its last act
	opGaveUp   = "gave up"  // the run's ctx ended
	opAnswer   = "answer"   // what a call of a once key got
	opPoint    = "point"    // the worker is at the point of its order, and stops or dies now
	opCanceled = "canceled" // the worker will not act on its order
	opBegan    = "began"    // the first act of a run under Latest; Text is the task
	opSuccess  = "success"  // its last act, after which it returns nil
	opSettled  = "settled"  // asynq gets the answer of the task: nil, later or failed in Sum
	opSlow     = "slow"     // a call took longer than usual, without its handler
	opFault    = "fault"    // what must never happen
	opReport   = "report"   // the counts of a worker that ends
)

// line is one line of the journal. All workers write to the same pipe, each line with a single
// write. So the order of the lines is the order of the events: a holder that writes a line before
// it releases its key is read before the next holder of the key.
type line struct {
	Op   string `json:"o"`
	Proc string `json:"p,omitempty"`
	At   int64  `json:"t"` // ns of the machine's clock
	Key  string `json:"k,omitempty"`
	Text string `json:"x,omitempty"`

	// Of a hold. At is a time before its first check.
	ID     int64 `json:"i,omitempty"` // unique in its process
	Limit  int   `json:"l,omitempty"` // 0: exclusive
	Weight int   `json:"w,omitempty"`
	Token  int64 `json:"n,omitempty"`
	Called int64 `json:"c,omitempty"`
	Valid  int64 `json:"v,omitempty"` // the hold was valid then

	// Of a once key.
	Run      string `json:"r,omitempty"`
	Attempt  int    `json:"a,omitempty"`
	TookOver bool   `json:"b,omitempty"`
	Sum      string `json:"s,omitempty"` // of the answer
	Replayed bool   `json:"y,omitempty"`

	Counts map[string]int `json:"m,omitempty"`
}

// write adds a line to the journal.
func (w *worker) write(l line) {
	l.Proc = w.Name
	if l.At == 0 {
		l.At = process.Now()
	}
	process.WriteLine(os.Stdout, l)
}

// fail reports an error that must not occur.
func (w *worker) fail(what string, err error) {
	if err != nil {
		w.write(line{Op: opFault, Text: what + ": " + err.Error()})
	}
}
