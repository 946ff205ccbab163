package lockcore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// STUB, replaced while the real one is written.
type Options struct {
	Prefix   string
	Terms    Terms
	Observer Observer
}
type Locker struct{}
type Lease struct{}
type Claim struct {
	Terms       Terms
	Keep        time.Duration
	Fingerprint []byte
	AtMostOnce  bool
	Check       func(record []byte) error
}
type Record struct {
	Data        []byte
	Attempt     int
}
type Holding struct {
	State   State
	Holder  Holder
	HeldFor time.Duration
	Left    time.Duration
	Token   int64
	Attempt int
	Queue   int
}
// MaxFingerprint is the longest fingerprint of a Claim, in bytes.
const MaxFingerprint = 64

type State string

const (
	StateFree      State = "free"
	StateHeld      State = "held"
	StateReserved  State = "reserved"
	StateDone      State = "done"
	StateAbandoned State = "abandoned"
)

func New(rdb redis.UniversalClient, o Options) (*Locker, error)                           { panic("") }
func (l *Locker) Acquire(ctx context.Context, key string, t Terms) (*Lease, error)        { panic("") }
func (l *Locker) Claim(ctx context.Context, key string, c Claim) (*Lease, *Record, error) { panic("") }
func (l *Locker) Report(ctx context.Context, e Event)                                     { panic("") }
func (l *Locker) Inspect(ctx context.Context, k Kind, key string) (Holding, error)        { panic("") }
func (l *Locker) Revoke(ctx context.Context, k Kind, key string) error                    { panic("") }
func (l *Locker) Clear(ctx context.Context, k Kind, key string) error                     { panic("") }
func (l *Locker) Close(ctx context.Context) error                                         { panic("") }
func (l *Lease) Key() string                                                              { panic("") }
func (l *Lease) Context() context.Context                                                 { panic("") }
func (l *Lease) Token() int64                                                             { panic("") }
func (l *Lease) Attempt() int                                                             { panic("") }
func (l *Lease) Abandoned() bool                                                          { panic("") }
func (l *Lease) Extend(ctx context.Context, d time.Duration) error                        { panic("") }
func (l *Lease) Release(ctx context.Context) error                                        { panic("") }
func (l *Lease) Complete(ctx context.Context, record []byte, keep time.Duration) error    { panic("") }
func (l *Lease) Abandon(ctx context.Context) error                                        { panic("") }
func WithTask(ctx context.Context, task string) context.Context                           { panic("") }
func TokenOf(ctx context.Context, key string) (int64, bool)                               { panic("") }
func Detach(ctx context.Context) context.Context                                          { panic("") }
