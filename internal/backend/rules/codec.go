package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// layout is the version of the encoding of a key, and its first byte. Raise it with each change of
// Key or of the order in which codec.key lists its fields.
const layout = 5

// Encode returns the data of a key as bytes. Equal data has equal bytes.
func Encode(k Key) []byte {
	c := codec{rest: []byte{layout}}
	c.key(&k)
	return c.rest
}

// Decode reads the bytes of Encode. It accepts no other bytes: it returns an error if they have
// another version, are cut off, or continue after the data. It needs memory in proportion to the
// bytes, whatever they are.
func Decode(b []byte) (Key, error) {
	switch {
	case len(b) == 0:
		return Key{}, errors.New("the stored data of a key is empty")
	case b[0] != layout:
		return Key{}, fmt.Errorf("the stored data of a key has layout version %d, want %d", b[0], layout)
	}
	var k Key
	c := codec{reads: true, rest: b[1:], size: len(b)}
	if c.key(&k); len(c.rest) > 0 {
		c.fail("end")
	}
	if c.err != nil {
		return Key{}, c.err
	}
	return k, nil
}

// codec encodes a key, or decodes one if reads is set. So the fields and their order are listed
// once.
type codec struct {
	reads bool
	rest  []byte // the bytes that were written, or that are left to read
	size  int    // number of bytes to read
	err   error  // the first one; nothing is read after it
}

func (c *codec) key(k *Key) {
	state := int(k.State)
	if c.number(&state); state < int(Free) || state > int(Shared) {
		c.fail("state")
		return
	}
	k.State = State(state) //nolint:gosec // see above
	for _, b := range []*bool{&k.Plain, &k.Revoked, &k.Replaced, &k.Abandoned} {
		c.flag(b)
	}
	for _, s := range []*string{&k.Owner, &k.Locker, &k.Holder, &k.Fingerprint, &k.CompletedBy, &k.PauseReason, &k.ParkingLocker, &k.Head} {
		c.text(s)
	}
	for _, n := range []*int64{
		&k.End, &k.Length, &k.Paused, &k.PauseLength, &k.Token, &k.Used, &k.Attempts, &k.HeadSeen, &k.Expires, &k.SharesExpires, &k.QueueExpires, &k.ParkedExpires,
		&k.Succeeded, &k.Uncovered, &k.TriggersExpires,
	} {
		c.long(n)
	}
	record := string(k.Record)
	if c.text(&record); c.reads && record != "" {
		k.Record = []byte(record)
	}
	f := &k.Flow
	c.text(&f.Head)
	for _, n := range []*int64{
		&f.Buckets[0].Full, &f.Buckets[0].Ahead, &f.Buckets[1].Full, &f.Buckets[1].Ahead, &f.HeadSeen, &f.Expires, &f.Restriction.End,
	} {
		c.long(n)
	}
	c.duration(&f.Restriction.For)
	c.number(&f.Restriction.Limit)
	c.rate(&f.Restriction.Rate)
	c.text(&f.Restriction.Reason)
	list(c, &k.Ended, c.text)
	list(c, &k.Shares, func(s *Share) {
		c.text(&s.ID)
		c.share(&s.Share)
		c.flag(&s.Cooling)
		c.long(&s.End)
		c.long(&s.Since)
		c.text(&s.Locker)
		c.text(&s.Holder)
	})
	list(c, &k.Queue, func(w *Waiter) {
		c.long(&w.Since)
		c.text(&w.Locker)
		c.text(&w.Request)
		c.share(&w.Share)
	})
	list(c, &k.Waits, func(w *Waits) {
		c.text(&w.Locker)
		c.number(&w.Calls)
		c.long(&w.Since)
		c.long(&w.Expires)
	})
	list(c, &k.Parked, func(p *ParkedEntry) {
		c.long(&p.Since)
		c.text(&p.Text)
		c.long(&p.Woken)
	})
	list(c, &k.Triggers, func(t *Trigger) {
		c.text(&t.Entry)
		c.long(&t.Score)
	})
}

func (c *codec) share(s *backend.Share) {
	c.number(&s.Limit)
	c.number(&s.Weight)
	c.rate(&s.Rate)
}

func (c *codec) rate(r *backend.Rate) {
	for _, n := range []*int{&r.N, &r.Burst, &r.Cost} {
		c.number(n)
	}
	c.duration(&r.Per)
}

func (c *codec) duration(d *time.Duration) {
	n := int64(*d)
	c.long(&n)
	*d = time.Duration(n)
}

// list encodes the number of elements and then each of them. Each takes at least a byte, so a
// decoded list has no more elements than there are bytes.
func list[T any](c *codec, all *[]T, each func(*T)) {
	n := len(*all)
	if c.number(&n); n < 0 || c.reads && n > len(c.rest) {
		c.fail("number of elements")
		return
	}
	for i := range n {
		if c.reads {
			if c.err != nil {
				return
			}
			*all = append(*all, *new(T))
		}
		each(&(*all)[i])
	}
}

func (c *codec) text(s *string) {
	n := len(*s)
	c.number(&n)
	switch {
	case !c.reads:
		c.rest = append(c.rest, *s...)
	case n < 0 || n > len(c.rest):
		c.fail("text")
	default:
		*s, c.rest = string(c.rest[:n]), c.rest[n:]
	}
}

func (c *codec) flag(b *bool) {
	n := 0
	if *b {
		n = 1
	}
	if c.number(&n); n != 0 && n != 1 {
		c.fail("flag")
	}
	*b = n == 1
}

func (c *codec) number(n *int) {
	long := int64(*n)
	c.long(&long)
	*n = int(long)
}

// long encodes a number as a varint, of the shortest form.
func (c *codec) long(n *int64) {
	if !c.reads {
		c.rest = binary.AppendVarint(c.rest, *n)
		return
	}
	v, size := binary.Varint(c.rest)
	if size <= 0 || size > 1 && c.rest[size-1] == 0 {
		c.fail("number")
		return
	}
	*n, c.rest = v, c.rest[size:]
}

func (c *codec) fail(want string) {
	if c.err == nil {
		c.err = fmt.Errorf("the stored data of a key has no valid %s at byte %d of %d", want, c.size-len(c.rest), c.size)
	}
	c.rest = nil
}
