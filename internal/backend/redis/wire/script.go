// Package wire is the protocol between the backend and its scripts in Redis: the names of the
// scripts, of their keys and of their arguments, the requests as commands, and the replies. No other
// package knows the position of an argument or of an element of a reply.
//
// table.go lists the scripts. ARCHITECTURE.md says how to add an argument.
package wire

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/scripts"
)

// Script is a script with the first arguments of its commands. These are boxed once, not for each
// command.
type Script struct {
	Name  string
	Text  string    // with the files that it includes
	SHA   []any     // EVALSHA and the digest of the script
	Full  []any     // EVAL and the text of the script
	Keys  []KeyName // its KEYS; renew.lua and grant_many.lua take more keys of the first kind
	Args  []string  // the names of its ARGV; the last one may be repeated
	Acked bool      // with replica acknowledgements, its effect counts only after replicas have acknowledged it

	script  *redis.Script
	granted int // element of its reply that is 1 if replicas must acknowledge the effect
	lease   int // element of its list that is the lease of a grant, in µs; 0: it grants nothing
}

// KeyName is the kind of a stored key.
type KeyName uint8

// The kinds of stored keys.
const (
	Hash     KeyName = iota // the data of a key
	Queue                   // its remote queue
	Shares                  // its shares
	Parked                  // its parked entries
	Woken                   // its woken entries
	Flow                    // its rate
	Triggers                // its triggers
)

// all has the scripts in the order of table.go.
var all []*Script

// Scripts returns all scripts.
func Scripts() []*Script { return slices.Clone(all) }

// Texts returns the texts of all scripts by their names.
func Texts() map[string]string {
	texts := map[string]string{}
	for _, s := range all {
		texts[s.Name] = s.Text
	}
	return texts
}

// script adds a script to the table.
func script(name string, keys []KeyName, args ...string) *Script {
	text := scripts.Text(name)
	r := redis.NewScript(text)
	s := &Script{Name: name, Text: text, SHA: []any{"evalsha", r.Hash()}, Full: []any{"eval", text}, Keys: keys, Args: args, script: r}
	all = append(all, s)
	return s
}

// acked makes a script wait for replicas. WAIT counts only up to the last write of the same
// connection. So a repeat must write too, even if the first copy has already taken effect. granted is
// the element of the reply that is 1 if the script had an effect. lease is the name of the argument
// with the lease of a grant; empty: the script grants nothing.
func (s *Script) acked(granted int, lease string) *Script {
	s.Acked, s.granted = true, granted
	if lease != "" {
		s.lease = s.at(lease)
	}
	return s
}

const firstKey = 3 // element of a list: the first key follows the name of the command, the script and the number of keys

// at returns the element of a list that has an argument.
func (s *Script) at(arg string) int {
	i := slices.Index(s.Args, arg)
	if i < 0 {
		panic("wire: " + s.Name + ".lua has no argument " + arg)
	}
	return firstKey + len(s.Keys) + i
}

// command returns the command of a script for a key.
func (s *Script) command(k *backend.Key, args ...any) Command {
	list := make([]any, firstKey, firstKey+len(s.Keys)+len(args))
	list[firstKey-1] = len(s.Keys)
	for _, name := range s.Keys {
		list = append(list, Stored(k.Stored[0], name))
	}
	return Command{Script: s, List: append(list, args...)}
}

// Command is a command that runs a script.
type Command struct {
	*Script

	// List is the command for go-redis: two elements for the script, the number of keys, the keys, and
	// the arguments. An element may point to its value. Use sets the first two.
	List []any
	// GrantMany means that grant_many.lua may run the command, in a group.
	GrantMany bool
}

// Use sets the first two elements of the list to s.SHA or s.Full.
func (c Command) Use(head []any) { copy(c.List, head) }

// With returns a copy of a command with another value of an argument.
func (c Command) With(arg string, value any) Command {
	c.List = slices.Clone(c.List)
	c.List[c.at(arg)] = value
	return c
}

// Key returns the first key.
func (c Command) Key() string { return textOf(c.List[firstKey]) }

// Texts returns the keys and the arguments as Redis gets them.
func (c Command) Texts() (keys, args []string) {
	n, _ := c.List[firstKey-1].(int)
	all := make([]string, len(c.List)-firstKey)
	for i := range all {
		all[i] = textOf(c.List[firstKey+i])
	}
	return all[:n], all[n:]
}

// Run runs the command on a client. It only calls methods that a wrapper may override.
func (c Command) Run(ctx context.Context, on redis.Scripter) (any, error) {
	keys, texts := c.Texts()
	args := make([]any, len(texts))
	for i, text := range texts {
		args[i] = text
	}
	return c.script.Run(ctx, on, keys, args...).Result()
}

// Lease returns the lease of a grant, in µs. ok is false if the script grants nothing.
func (c Command) Lease() (us int64, ok bool) {
	if c.lease == 0 {
		return 0, false
	}
	switch lease := c.List[c.lease].(type) {
	case int64:
		return lease, true
	case *int64:
		return *lease, true
	}
	return 0, false
}

// HasEffect reports whether the script had an effect that replicas can acknowledge.
func (s *Script) HasEffect(reply any) bool {
	n, err := number(Elements(reply), s.granted)
	return err == nil && n == 1
}

// textOf returns an element of a list as Redis gets it.
func textOf(element any) string {
	switch e := element.(type) {
	case string:
		return e
	case *string:
		return *e
	case []byte:
		return string(e)
	case *HoldTerms:
		return string(*e)
	case int:
		return strconv.Itoa(e)
	case int64:
		return strconv.FormatInt(e, 10)
	case *int64:
		return strconv.FormatInt(*e, 10)
	}
	panic(fmt.Sprintf("wire: an argument of type %T", element))
}
