package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const listBatch = 100 // keys that List inspects before it yields them

// List implements backend.Backend. A key that exists during the whole call is yielded once.
func (b *Backend) List(ctx context.Context, r backend.ListRequest) iter.Seq2[backend.ListEntry, error] {
	return func(yield func(backend.ListEntry, error) bool) {
		keys, err := b.matching(r)
		for some := range slices.Chunk(keys, listBatch) {
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				break
			}
			var entries []backend.ListEntry
			entries, err = b.entries(some, r)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(backend.ListEntry{}, err)
		}
	}
}

// matching returns the keys that List must inspect.
func (b *Backend) matching(r backend.ListRequest) ([]backend.Key, error) {
	if r.Kind != 0 && r.Kind != backend.KindExclusive && r.Kind != backend.KindOnce {
		return nil, fmt.Errorf("lockcore: ListRequest.Kind is %d, must be KindExclusive, KindOnce or 0", r.Kind)
	}
	pattern := "{" + escape(cmp.Or(r.Match, "*")) + "}" // as in Redis, where the braces are part of the name
	s := b.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.isClosed() {
		return nil, backend.ErrClosed
	}
	var keys []backend.Key
	for _, e := range s.keys {
		if (r.Kind == 0 || e.of.Kind == r.Kind) && glob(pattern, "{"+escape(e.of.Name)+"}") {
			keys = append(keys, e.of)
		}
	}
	return keys, nil
}

// entries inspects keys, and skips those that r does not select.
func (b *Backend) entries(keys []backend.Key, r backend.ListRequest) (entries []backend.ListEntry, err error) {
	part := backend.NoRecord
	if r.RecordHeads {
		part = backend.RecordHead
	}
	for i := range keys {
		s, err := b.Inspect(context.Background(), &keys[i], part)
		if err != nil {
			return entries, err
		}
		if r.Selects(&s) {
			entries = append(entries, backend.ListEntry{Kind: keys[i].Kind, Name: keys[i].Name, Status: s})
		}
	}
	return entries, nil
}

// escape returns the name as it is in Redis. Braces, percent signs and bytes that are not printable
// ASCII become %XX.
func escape(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return r >= 0x7f || needsEscape(byte(r)) }) {
		return name
	}
	var text strings.Builder
	for i := range len(name) {
		if c := name[i]; needsEscape(c) {
			fmt.Fprintf(&text, "%%%02X", c)
		} else {
			text.WriteByte(c)
		}
	}
	return text.String()
}

func needsEscape(c byte) bool { return c <= ' ' || c >= 0x7f || c == '{' || c == '}' || c == '%' }

// glob reports whether the pattern matches the whole text, as in Redis: *, ?, [a-z], [^a-z], and a
// backslash that makes the next byte literal. If the text after a * does not match, that * takes
// one more byte. No earlier * has to be tried again, so the time is at most len(pattern)*len(text).
func glob(pattern, text string) bool {
	p, t := 0, 0
	star, from := -1, 0 // positions after the last *: of the pattern, and of the text that it must match
	for t < len(text) || p < len(pattern) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			star, from = p, t
			continue
		}
		if p < len(pattern) && t < len(text) {
			if n, ok := matchByte(pattern[p:], text[t]); ok {
				p, t = p+n, t+1
				continue
			}
		}
		if star < 0 || from >= len(text) {
			return false
		}
		from++
		p, t = star, from
	}
	return true
}

// matchByte matches c with the first element of a pattern, and returns the length of the element.
func matchByte(pattern string, c byte) (n int, ok bool) {
	switch {
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '[':
		return matchClass(pattern, c)
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == c
	default:
		return 1, pattern[0] == c
	}
}

// matchClass matches c with a class such as [a-z]. A class without ] extends to the end of the
// pattern.
func matchClass(pattern string, c byte) (n int, ok bool) {
	i := 1
	negated := strings.HasPrefix(pattern[i:], "^")
	if negated {
		i++
	}
	for ; i < len(pattern); i++ {
		switch rest := pattern[i:]; {
		case rest[0] == '\\' && len(rest) > 1:
			i++
			ok = ok || rest[1] == c
		case rest[0] == ']':
			return i + 1, ok != negated
		case len(rest) > 2 && rest[1] == '-':
			i += 2
			ok = ok || min(rest[0], rest[2]) <= c && c <= max(rest[0], rest[2])
		default:
			ok = ok || rest[0] == c
		}
	}
	return i, ok != negated
}
