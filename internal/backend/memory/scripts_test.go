package memory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// channels is the prefix of the names of channels in backend/redis.
const channels = "holdfast:2:wake:"

// scriptTexts returns the scripts by name. edits replace text. Each text must occur.
func scriptTexts(t *testing.T, edits ...[2]string) map[string]string {
	t.Helper()
	all := wire.Texts()
	for _, e := range edits {
		used := false
		for name, text := range all {
			used = used || strings.Contains(text, e[0])
			all[name] = strings.ReplaceAll(text, e[0], e[1])
		}
		if !used {
			t.Fatalf("no script contains %q", e[0])
		}
	}
	return all
}

// scripted is a server that runs the scripts.
type scripted interface {
	// run runs a script at the time now. It returns the reply, and the data of the key after it.
	run(now int64, c wire.Command, key backend.Key) (any, memory.Stored, error)
	look(key backend.Key) memory.Stored
	remove(key backend.Key)
	unmark(key backend.Key) // removes the marks of woken entries
	enqueue(now int64, key backend.Key, locker string, since int64, ids ...string)
	listen(locker string, on bool)
	heard() []string // the notifications since the last call
}

// sender sends the requests of a locker.
func sender(locker string) *wire.Sender {
	return &wire.Sender{Locker: locker, Channels: channels, Single: true}
}

const lockers = 4

// lockerID returns the id of locker i.
func lockerID(i int) string { return fmt.Sprintf("L%025d", i) }

// namesOf returns the names of all data of a key.
func namesOf(k backend.Key) (names []string) {
	for i := range lockers {
		names = append(names, k.Stored[1]+":"+lockerID(i))
	}
	for name := wire.Hash; name <= wire.Triggers; name++ {
		names = append(names, wire.Stored(k.Stored[0], name))
	}
	return names
}
