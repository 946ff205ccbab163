package httpsoak_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
)

// The kinds of lines in the journal.
const (
	opGranted = "granted" // the Observer was notified that this process has the key
	opBegin   = "begin"   // the handler's first act
	opEnd     = "end"     // its last one
	opGaveUp  = "gave up" // the handler's ctx ended
	opDie     = "die"     // the process kills itself now, as ordered
	opLate    = "late"    // a short sleep and a PING took longer by Late: the machine is busy
	opFault   = "fault"   // a lost lease, a failed completion, an unreadable record, a leaked goroutine
)

// line is one line of the journal. Servers write it outside of the lock, each with a single write
// at the end of one file.
type line struct {
	Op       string
	Proc     string
	Key      string        `json:",omitempty"` // the client's
	Guard    string        `json:",omitempty"` // what httpmw.Key says
	Run      string        `json:",omitempty"`
	Attempt  int           `json:",omitempty"`
	TookOver bool          `json:",omitempty"`
	Sum      string        `json:",omitempty"` // of the answer
	Text     string        `json:",omitempty"`
	Late     time.Duration `json:",omitempty"`
	At       int64         // ns of the machine's clock, before the line was written
}

type journal struct {
	f    *os.File
	proc string
}

func openJournal(path, proc string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &journal{f: f, proc: proc}, err
}

func (j *journal) write(l line) {
	l.Proc, l.At = j.proc, chaos.Now()
	chaos.WriteLine(j.f, l)
}

func readJournal(path string) (lines []line, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = chaos.ReadLines(f, func(l line) { lines = append(lines, l) })
	return lines, err
}

// ownHeaders are the headers that the handler may set. All are recorded.
var ownHeaders = []string{"Content-Type", "Etag", "Location", "X-Part", "X-Receipt"}

// sum returns a digest of an answer: its status, the headers of the handler, and its body.
func sum(status int, h http.Header, body []byte) string {
	d := sha256.New()
	fmt.Fprintln(d, status)
	for _, name := range ownHeaders {
		fmt.Fprintf(d, "%s %q\n", name, h.Values(name))
	}
	d.Write(body)
	return hex.EncodeToString(d.Sum(nil))
}
