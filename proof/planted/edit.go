package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// edit is an operation on a marked place.
type edit struct {
	at string // name of the marker
	do operation
}

// operation returns the part of a place that it replaces, and the new text.
type operation func(all places, pl *place) (span, string, error)

// skip keeps the statement from running. The statement is still compiled, so that nothing becomes
// unused.
func skip() operation {
	return func(_ places, pl *place) (span, string, error) {
		s, err := pl.statement()
		if !pl.isGo() {
			return s, "if false then " + pl.of(s) + " end", err
		}
		return s, "if false { " + pl.of(s) + " }", err
	}
}

// stmt replaces the statement.
func stmt(text string) operation {
	return func(all places, pl *place) (span, string, error) {
		s, err := pl.statement()
		if err != nil {
			return s, "", err
		}
		to, err := fill(text, all, pl.of(s), nil)
		return s, to, err
	}
}

func before(text string) operation { return stmt(text + "\n$") }
func after(text string) operation  { return stmt("$\n" + text) }

// value replaces the expression.
func value(text string) operation {
	return func(all places, pl *place) (span, string, error) {
		s, _, err := pl.expression()
		if err != nil {
			return s, "", err
		}
		to, err := fill(text, all, pl.of(s), nil)
		return s, to, err
	}
}

// never and always make the condition constant. They keep it in the text, so that nothing becomes
// unused.
func never() operation  { return constant(false) }
func always() operation { return constant(true) }

func constant(b bool) operation {
	return func(_ places, pl *place) (span, string, error) {
		s, _, err := pl.expression()
		return s, fixed(pl, s, b), err
	}
}

// fixed returns the condition in s with the constant value b. It is not evaluated.
func fixed(pl *place, s span, b bool) string {
	and, or := "&&", "||"
	if !pl.isGo() {
		and, or = "and", "or"
	}
	if b {
		return "(true " + or + " (" + pl.of(s) + "))"
	}
	return "(false " + and + " (" + pl.of(s) + "))"
}

// operandNever and operandAlways do the same with operand i of a chain of && or ||.
func operandNever(i int) operation {
	return oneOperand(i, func(pl *place, s span) string { return fixed(pl, s, false) })
}

func operandAlways(i int) operation {
	return oneOperand(i, func(pl *place, s span) string { return fixed(pl, s, true) })
}

// operand replaces operand i.
func operand(i int, text string) operation {
	return oneOperand(i, func(*place, span) string { return text })
}

func oneOperand(i int, text func(*place, span) string) operation {
	return func(_ places, pl *place) (span, string, error) {
		list, err := pl.operands()
		if err == nil && i >= len(list) {
			err = pl.misfit(fmt.Sprintf("operand %d", i))
		}
		if err != nil {
			return span{}, "", err
		}
		return list[i], text(pl, list[i]), nil
	}
}

// arg replaces argument i of the call.
func arg(i int, text string) operation {
	return func(all places, pl *place) (span, string, error) {
		_, args, err := pl.called()
		if err == nil && i >= len(args) {
			err = pl.misfit(fmt.Sprintf("argument %d", i))
		}
		if err != nil {
			return span{}, "", err
		}
		to, err := fill(text, all, pl.of(args[i]), nil)
		return args[i], to, err
	}
}

// call replaces the call.
func call(text string) operation {
	return func(all places, pl *place) (span, string, error) {
		s, list, err := pl.called()
		if err != nil {
			return s, "", err
		}
		var args []string
		for _, a := range list {
			args = append(args, pl.of(a))
		}
		to, err := fill(text, all, pl.of(s), args)
		return s, to, err
	}
}

var blank = regexp.MustCompile(`\$(?:\d|\([a-z0-9-]+\))?`)

// fill replaces $ by old, $0, $1 … by args, and $(NAME) by the statement at another place.
func fill(text string, all places, old string, args []string) (string, error) {
	var failed error
	return blank.ReplaceAllStringFunc(text, func(b string) string {
		if b == "$" {
			return old
		}
		if i, err := strconv.Atoi(b[1:]); err == nil {
			if i >= len(args) {
				failed = fmt.Errorf("the mistake no longer fits the code: no argument for %s in %q", b, text)
				return b
			}
			return args[i]
		}
		pl, err := all.one(b[2 : len(b)-1])
		if err != nil {
			failed = err
			return b
		}
		s, err := pl.statement()
		if err != nil {
			failed = err
			return b
		}
		return pl.of(s)
	}), failed
}

// change is the effect of an edit on a file.
type change struct {
	span
	text string
}

// apply returns the text of a file with its changes.
func apply(text string, changes []change) (string, error) {
	slices.SortFunc(changes, func(a, b change) int { return b.start - a.start })
	for i, c := range changes {
		if i > 0 && c.end > changes[i-1].start {
			return "", fmt.Errorf("two edits of one mistake overlap: %q and %q", c.text, changes[i-1].text)
		}
		text = text[:c.start] + c.text + text[c.end:]
	}
	return text, nil
}
