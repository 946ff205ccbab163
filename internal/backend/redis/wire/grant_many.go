package wire

import (
	"fmt"
	"strconv"
)

// GrantMany releases and acquires plain holds for a group. Its KEYS are the keys of the calls,
// releases first. Its ARGV are the number of releases, the grant of each, and then for each acquire
// its request, its HoldTerms and its retention.
var GrantMany = script("grant_many", []KeyName{Hash}, "releases", "grants_and_holds")

// HoldTerms is the part of a plain hold after the token. It is a BinaryMarshaler, because go-redis
// writes the bytes of a BinaryMarshaler without a copy.
type HoldTerms []byte

// Set sets the terms from a command of Acquire. It reuses the memory of t.
func (t *HoldTerms) Set(c Command) {
	lease, _ := c.Lease()
	b := strconv.AppendInt((*t)[:0], lease, 10)
	b = append(append(b, " 0 "...), textOf(c.List[acquireLocker])...)
	*t = append(append(b, ' '), textOf(c.List[acquireHolder])...)
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (t *HoldTerms) MarshalBinary() ([]byte, error) { return *t, nil }

var (
	acquireRequest, acquireLocker   = Acquire.at("request"), Acquire.at("locker")
	acquireHolder, acquireRetention = Acquire.at("holder"), Acquire.at("retention_ms")
	acquirePlain                    = Acquire.at("plain")
	releaseGrant, releasePlain      = Release.at("grant_id"), Release.at("plain")
)

// SetNotPlain makes a command that grant_many.lua did not run an ordinary one of its own script.
func (c Command) SetNotPlain() {
	switch c.Script {
	case Acquire:
		c.List[acquirePlain] = &no
	case Release:
		c.List[releasePlain] = &no
	}
}

// AppendGrantMany appends the list of a command of grant_many.lua to list, which has the first two
// elements. call returns command i of n, and for an acquire its terms. The releases must come
// first.
func AppendGrantMany(list []any, n int, call func(i int) (Command, *HoldTerms)) []any {
	list = append(list, n)
	releases := 0
	for i := range n {
		c, _ := call(i)
		list = append(list, c.List[firstKey])
		if c.Script == Release {
			releases++
		}
	}
	list = append(list, releases)
	for i := range n {
		if c, terms := call(i); c.Script == Release {
			list = append(list, c.List[releaseGrant])
		} else {
			list = append(list, c.List[acquireRequest], terms, c.List[acquireRetention])
		}
	}
	return list
}

// GrantManyReply decodes a reply of grant_many.lua for n calls. grant is the reply of acquire.lua
// for each acquire. undone is called for each call that the script did not run, and must be sent
// with its own script. acquires is whether the last call is an acquire.
func GrantManyReply(reply any, n int, acquires bool, undone func(i int)) (grant any, err error) {
	bad := func() error { return &ReplyError{fmt.Sprintf("lockcore: unexpected reply: %v", reply)} }
	list, _ := reply.([]any)
	if len(list) == 0 {
		return nil, bad()
	}
	if token, ok := list[0].(string); !ok || (token != "") != acquires {
		return nil, bad()
	}
	last := int64(0)
	for _, v := range list[1:] {
		i, ok := v.(int64)
		if !ok || i <= last || i > int64(n) {
			return nil, bad()
		}
		last = i
	}
	for _, v := range list[1:] {
		i, _ := v.(int64)
		undone(int(i) - 1)
	}
	return list[0], nil
}
