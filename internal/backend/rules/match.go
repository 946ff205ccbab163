package rules

import (
	"cmp"
	"fmt"
	"strings"
)

// This file contains the patterns of List. They match the names that keys have in Redis, on every
// backend.

// Matching returns a function that reports whether the name of a key matches, see
// backend.ListRequest.Match.
func Matching(match string) func(name string) bool {
	pattern := "{" + escape(cmp.Or(match, "*")) + "}" // as in Redis, where the braces are part of the name
	return func(name string) bool { return glob(pattern, "{"+escape(name)+"}") }
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
