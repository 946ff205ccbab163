package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rule of triggers. It has the form of those in rules.go. The triggers are not
// part of the data of the key, and have their own TTL.

const (
	ended    = Span(backend.TriggerTTL / 1000)
	maxEnds  = 100 // maximum number of ended triggers that one request forgets
	maxOlder = backend.MaxOlder
)

// Trigger is a trigger of a key.
type Trigger struct {
	Entry string
	Score int64 // its number; when it has ended, the negative time of its end
}

// Order orders the triggers of a key.
func Order(k Key, r *backend.TriggerRequest, e Env) (Key, backend.TriggerReply) {
	k.Expire(e.Now)
	k.Triggers = slices.Clone(k.Triggers)
	switch r.Op {
	case backend.TriggerRead:
		return k, backend.TriggerReply{Outcome: backend.TriggerNewest, Succeeded: k.Succeeded, Now: e.Now}
	case backend.TriggerNote:
		reply := k.noteTrigger(r, e.Now)
		return k, reply
	case backend.TriggerDone:
		k.Succeeded = max(k.Succeeded, r.Number)
		if k.Uncovered <= k.Succeeded {
			k.Uncovered = 0
			if next := k.open(k.Succeeded + 1); len(next) > 0 {
				k.Uncovered = next[0].Score
			}
		}
	case backend.TriggerDrop:
	}
	if r.Ends && k.scoreOf(r.Entry) == r.Number { //planted:rules-trigger-of-this-task
		k.setScore(r.Entry, -e.Now)
	}
	keep := ended
	if len(k.open(1)) > 0 {
		keep = wholeMillis(r.Keep)
	}
	if k.TriggersExpires = e.Now + keep; len(k.Triggers) == 0 && k.Succeeded == 0 && k.Uncovered == 0 {
		k.TriggersExpires = 0
	}
	return k, backend.TriggerReply{Outcome: backend.TriggerNewest}
}

func (k *Key) noteTrigger(r *backend.TriggerRequest, now Instant) (reply backend.TriggerReply) {
	number := k.scoreOf(r.Entry)
	if number < -now {
		number = -now
		k.setScore(r.Entry, number)
	}
	if number < 0 {
		if !r.Fresh {
			return reply
		}
		if left := minute - now - number; left > 0 {
			return backend.TriggerReply{Outcome: backend.TriggerAgain, Wait: duration(left)}
		}
		number = 0
	}
	newest := k.newestNumber()
	if number == 0 {
		k.forgetTriggers(r.Most, now)
		number = max(now, newest+1) //planted:rules-triggers-in-order
		reply.Older = min(len(k.open(1)), maxOlder)
		newest = number
		k.setScore(r.Entry, number)
	}
	k.TriggersExpires = now + wholeMillis(r.Keep)
	if newest > number || k.Succeeded >= number {
		return backend.TriggerReply{Number: number}
	}
	if k.Uncovered == 0 {
		k.Uncovered = number
	}
	reply.Outcome, reply.Number, reply.First, reply.Now = backend.TriggerNewest, number, k.Uncovered, now
	return reply
}

// newestNumber returns the greatest number of a trigger or success, or 0.
func (k *Key) newestNumber() int64 {
	newest := max(k.Succeeded, k.Uncovered)
	if n := len(k.Triggers); n > 0 {
		newest = max(newest, k.Triggers[n-1].Score)
	}
	return newest
}

// newestTrigger returns the entry of the newest trigger, unless a success covers it, and its age.
func (k *Key) newestTrigger(now Instant) (entry string, age time.Duration) {
	number := k.newestNumber()
	if number == 0 {
		return "", 0
	}
	if open := k.open(k.Succeeded + 1); len(open) > 0 {
		entry = open[len(open)-1].Entry
	}
	return entry, duration(max(now-number, 1))
}

// forgetTriggers removes some of the triggers that ended long ago. If there are none, and the key has
// too many triggers, it removes the oldest.
func (k *Key) forgetTriggers(most int, now Instant) {
	all := len(k.Triggers)
	for _, special := range []int64{k.Succeeded, k.Uncovered} {
		if special != 0 {
			all++
		}
	}
	first := len(k.Triggers) - len(k.open(1)) // the first ones have ended, the oldest last
	gone := 0
	for gone < min(first, maxEnds) && k.Triggers[first-gone-1].Score >= ended-now {
		gone++
	}
	switch {
	case gone > 0:
		k.Triggers = slices.Delete(k.Triggers, first-gone, first)
	case all < most:
	case first > 0:
		k.Triggers = slices.Delete(k.Triggers, first-1, first)
	case len(k.Triggers) > 0:
		k.Triggers = slices.Delete(k.Triggers, 0, 1)
	}
}

// open returns the triggers that have not ended, with numbers from least on.
func (k *Key) open(least int64) []Trigger {
	i, _ := slices.BinarySearchFunc(k.Triggers, Trigger{Score: max(least, 1)}, byScore)
	return k.Triggers[i:]
}

// scoreOf returns the score of a trigger, or 0.
func (k *Key) scoreOf(entry string) int64 {
	for _, t := range k.Triggers {
		if t.Entry == entry {
			return t.Score
		}
	}
	return 0
}

func (k *Key) setScore(entry string, score int64) {
	k.Triggers = slices.DeleteFunc(k.Triggers, func(t Trigger) bool { return t.Entry == entry })
	t := Trigger{entry, score}
	i, _ := slices.BinarySearchFunc(k.Triggers, t, byScore)
	k.Triggers = slices.Insert(k.Triggers, i, t)
}

func byScore(a, b Trigger) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Entry, b.Entry))
}
