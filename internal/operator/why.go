package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Task is what a queue knows of a task.
type Task struct {
	ID       string    `json:"id"`
	Queue    string    `json:"queue"`
	Type     string    `json:"type"`
	State    string    `json:"state"`    // as the queue names it: active, pending, scheduled, retry, archived, completed
	Orphaned bool      `json:"orphaned"` // active, and its worker has died
	Retried  int       `json:"retried"`
	MaxRetry int       `json:"max_retry"`
	Next     time.Time `json:"next,omitzero"` // when it comes back; zero: no time
	LastErr  string    `json:"last_error,omitempty"`
}

// Explanation says why something waits.
type Explanation struct {
	AsOf     time.Time `json:"as_of"`
	Subject  string    `json:"subject"`        // a task ID or a key
	Tasks    []Task    `json:"tasks"`          // with that ID, in each queue
	Searched bool      `json:"tasks_searched"` // the queues were asked for them
	Keys     []Key     `json:"-"`              // that it waits for, or has
	Holds    bool      `json:"holds"`          // the task has the keys
	Similar  bool      `json:"similar"`        // nothing has this name; the keys begin with it
	Answer   string    `json:"answer"`
}

// ErrNotSearched is the error of a search for tasks that the user may not make.
var ErrNotSearched = errors.New("operator: the queues may not be read")

// Why explains why a task or the calls of a key wait. tasks finds the tasks with an ID in all queues; nil:
// there are none. list finds the keys that are not free and match. A subject that is neither is explained
// too, with the keys that begin with it.
func Why(ctx context.Context, l *lockcore.Locker, subject string, tasks func(context.Context, string) ([]Task, error), list func(match func(*Key) bool) []Key) (Explanation, error) {
	e := Explanation{AsOf: time.Now().UTC(), Subject: subject, Tasks: []Task{}}
	if tasks != nil {
		found, err := tasks(ctx, subject)
		if err != nil && !errors.Is(err, ErrNotSearched) {
			return e, err
		}
		e.Tasks, e.Searched = append(e.Tasks, found...), err == nil
	}
	var names []string // of keys
	for _, t := range e.Tasks {
		if t.State == "active" {
			if e.Keys = list(func(k *Key) bool { return k.HasTask(subject) }); len(e.Keys) > 0 {
				e.Holds = true
				e.Answer = e.Text()
				return e, nil
			}
		}
		if keys := KeysIn(t.LastErr); len(keys) > 0 {
			names = append(names, keys[0])
		}
	}
	if subject != "" { // a key may have the ID of a task as its name
		names = append(names, subject)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} {
			k, err := Inspect(ctx, l, kind, name, false)
			if errors.Is(err, lockcore.ErrKey) && len(e.Tasks) > 0 { // no key can have this name
				break
			}
			if err != nil {
				return e, err
			}
			if k.Known() {
				e.Keys = append(e.Keys, k)
			}
		}
	}
	if subject != "" && len(e.Tasks)+len(e.Keys) == 0 {
		e.Keys = list(func(k *Key) bool { return strings.HasPrefix(k.Key, subject) })
		e.Similar = len(e.Keys) > 0
		slices.SortFunc(e.Keys, func(a, b Key) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Kind, b.Kind)) })
	}
	e.Answer = e.Text()
	return e, nil
}

// Known reports whether anything is known of a key: it is not free, or something waits for it.
func (k *Key) Known() bool {
	return k.State != lockcore.StateFree || k.NotReleased || k.Token != 0 || k.Queue > 0 || k.Parked > 0 || k.Restriction.For > 0 || k.RateFullIn > 0 || k.LatestAge > 0
}

// errorKey finds a key in the error of a call that found it busy, abandoned or done, or of a parked task.
var errorKey = regexp.MustCompile(`(?:parked on key |lockcore: )("(?:[^"\\]|\\.)*")`)

// JSON returns the form of -json and of the page.
func (e *Explanation) JSON() any {
	answer := struct {
		Explanation
		Keys []Holding `json:"keys"`
	}{*e, []Holding{}}
	for i := range e.Keys {
		answer.Keys = append(answer.Keys, e.Keys[i].JSON())
	}
	return answer
}

// KeysIn returns the keys that the error of a task names.
func KeysIn(text string) (keys []string) {
	for _, m := range errorKey.FindAllStringSubmatch(text, -1) {
		if key, err := strconv.Unquote(m[1]); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Matching returns the keys that are not free and match.
func Matching(ctx context.Context, l *lockcore.Locker, match func(*Key) bool) (keys []Key, err error) {
	for e, err := range doctor.List(ctx, l, doctor.ListOptions{}) {
		if err != nil {
			return keys, err
		}
		if k := (Key{Entry: e}); match(&k) && !slices.ContainsFunc(keys, func(o Key) bool { return o.Kind == k.Kind && o.Key == k.Key }) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// HasTask reports whether a task with this ID has the key, alone or shared.
func (k *Key) HasTask(task string) bool {
	switch k.State { //nolint:exhaustive // in the others no handler runs
	case lockcore.StateHeld:
		return k.Holder.Task == task
	case lockcore.StateShared:
		for i := range k.Shares {
			if k.Shares[i].Holder.Task == task && !k.Shares[i].Cooling {
				return true
			}
		}
		return k.Holder.Task == task
	}
	return false
}

// Text is the answer in sentences.
func (e *Explanation) Text() string {
	var says []string
	for _, t := range e.Tasks {
		says = append(says, t.text(e))
	}
	if e.Similar {
		names := []string{}
		for i := range e.Keys[:min(len(e.Keys), maxSimilar)] {
			names = append(names, OneLine(e.Keys[i].Key))
		}
		if more := len(e.Keys) - maxSimilar; more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		return fmt.Sprintf("Nothing has the name %s. These keys begin with it: %s.", OneLine(e.Subject), strings.Join(names, ", "))
	}
	for i := range e.Keys {
		says = append(says, e.Keys[i].Explain())
	}
	switch {
	case len(e.Tasks) == 0 && len(e.Keys) == 0:
		noTask := "tasks were not searched (those of asynq are, with the address of its Redis; those of River are not: ask for the key)"
		if e.Searched {
			noTask = "no task has that ID"
		}
		says = append(says, "Nothing is known of "+OneLine(e.Subject)+": "+noTask+", and no call holds such a key or waits for it. Is it the whole name, and the right prefix and server?")
	case len(e.Keys) == 0 && e.waits():
		says = append(says, "Its last error names no key, or that key is free now. If you know its key, ask for that by name. holdfast ls shows for which keys calls wait.")
	}
	return strings.Join(says, " ")
}

const maxSimilar = 20 // names in an answer

// waits reports whether one of the tasks waits for a key, as far as its queue knows.
func (e *Explanation) waits() bool {
	for _, t := range e.Tasks {
		if t.State == "retry" || t.State == "scheduled" || t.State == "active" {
			return true
		}
	}
	return false
}

func (t *Task) text(e *Explanation) string {
	in := fmt.Sprintf("Task %s of queue %s ", OneLine(t.ID), OneLine(t.Queue))
	next := "."
	if !t.Next.IsZero() {
		if next = ", at any moment."; time.Until(t.Next) > 0 {
			next = fmt.Sprintf(", at %s (in %s).", t.Next.Format("15:04:05 MST"), Age(time.Until(t.Next)))
		}
	}
	switch t.State {
	case "active":
		switch {
		case t.Orphaned:
			return in + "was in a worker that has died. The queue runs it again, usually within a minute."
		case e.Holds:
			return in + "runs, and has its key."
		}
		return in + "is in a worker. No key of it was found: it needs none, or waits for one there, and only its program knows for which."
	case "pending":
		return in + "waits for a worker."
	case "scheduled":
		return in + "is scheduled" + next
	case "retry":
		if strings.Contains(t.LastErr, "parked on key ") {
			return in + "is parked: it comes back when its key is free, or" + strings.TrimPrefix(next, ",")
		}
		return in + fmt.Sprintf("failed or found its key busy (retry %d of %d), and comes back", t.Retried, t.MaxRetry) + next
	case "archived":
		return in + "is archived: its queue has given it up. Last error: " + OneLine(t.LastErr) + "."
	case "completed":
		return in + "is completed."
	}
	return in + "is " + OneLine(t.State) + "."
}

// command returns a command for the key, which a shell can read.
func (k *Key) command(name string) string {
	if k.Kind == event.KindOnce {
		name += " -once"
	}
	key := k.Key
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/_.@%+-") != "" || strings.HasPrefix(key, "-") {
		key = "'" + strings.ReplaceAll(OneLine(key), "'", `'\''`) + "'"
	}
	return "holdfast " + name + " " + key
}

// Explain says what the calls of a key wait for, when that ends at the earliest, and what an operator can do.
func (k *Key) Explain() string {
	key, left := OneLine(k.Key), Age(k.Remaining)
	var says []string
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	switch k.State {
	case lockcore.StateHeld, lockcore.StateShared:
		if k.State == lockcore.StateShared {
			say("%s is %s; its last share was granted to %s.", key, k.StateText(), Holder(k.Holder))
		} else {
			say("%s is held by %s for %s.", key, Holder(k.Holder), Age(k.HeldFor))
		}
		silent := k.Lease - k.Remaining
		switch {
		case k.Revoked:
			say("It was revoked, and its handler has not returned. The key is free when it has, or in %s: if it ignores its ctx, end its process before that, or the next call begins next to it.", left)
		case k.State == lockcore.StateShared:
			if k.full() {
				say("So the next call waits until a handler returns.")
			}
			say("Its last lease ends in %s unless it is renewed.", left)
		case k.Transferred:
			say("Its hold is on its way to another process with a ticket: it is free when that one has adopted it and its work is done, or in %s if none adopts it.", left)
		case k.Fixed:
			say("Its lease is not renewed: it is free when the handler has returned, or in %s.", left)
		case silent > k.Lease/2:
			say("Its lease was not renewed for %s: its process died or lost its connection, or MaxHold or Stall ended the hold. It is free in %s (sooner, if it died: %s).", Age(silent), left, k.command("clear -force"))
		default:
			say("Its lease was renewed %s ago, so its process lived then. It is free when the handler has returned (to ask it to stop: %s), or in %s if the process has died.", Age(max(silent, 1)), k.command("revoke"), left)
		}
	case lockcore.StateReserved:
		say("%s is reserved for the next process for %s.", key, left)
	case lockcore.StateCooling:
		if k.Remaining > k.PauseLeft { // otherwise only the pause counts
			say("%s is cooling: it is free in %s, at the end of its MinHold.", key, left)
		}
	case lockcore.StateDone:
		say("%s is %s. Calls get its record for another %s.", key, k.StateText(), Age(k.KeepLeft))
	case lockcore.StateAbandoned:
		say("%s was abandoned by %s: run %d began %s ago, and its outcome is unknown. Calls that may run at most once are refused. When you know what it did: %s, and then send the work again.", key, Holder(k.Holder), k.Attempt, Age(k.HeldFor), k.command("clear"))
	case lockcore.StateFree:
		if k.NotReleased {
			say("%s is free, but its last hold, by %s, ended without a release: its process has died, or its handler ignored the end of its ctx and may still run.", key, Holder(k.Holder))
		} else if k.PauseLeft <= 0 {
			say("%s is free.", key)
		}
	}
	if k.PauseLeft > 0 {
		say("%s is paused: no call begins for %s (%s; to end it: %s).", key, Age(k.PauseLeft), OneLine(k.PauseReason), k.command("pause -end"))
	}
	if k.RateFullIn > 0 {
		say("Its rate is %s.", k.RateText())
	}
	if r := k.Restriction; r.For > 0 {
		say("It is restricted to %s for %s (%s; to end it: %s).", Bounds(r), Age(r.For), OneLine(r.Reason), k.command("limit -end"))
	}
	if k.Queue > 0 {
		say("Waiting: %s.", k.WaitingText())
	}
	if k.LatestTask != "" {
		say("Of the tasks of Latest, %s is the newest, and came %s ago: it is not done.", ParkedTaskOf(k.LatestTask), Age(k.LatestAge))
	}
	if k.Parked > 0 {
		wake := ""
		if k.State == lockcore.StateFree {
			wake = " Nothing runs, so wake one: " + k.command("wake") + "."
		}
		say("Parked tasks: %d, the oldest (%s) for %s.%s", k.Parked, ParkedTaskOf(k.OldestParked), Age(k.ParkedFor), wake)
	}
	return strings.Join(says, " ")
}
