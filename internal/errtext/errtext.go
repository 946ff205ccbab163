// Package errtext makes errors whose message is one line and begins with one package name.
//
// errors.Join puts a newline between messages, and fmt.Errorf("%w: %w") repeats the package name:
// "lockcore: not run: lockcore: bad key". The results of this package match the same errors with
// errors.Is and errors.As. A package name is cut only if it belongs to this module, begins its
// message, and another message precedes it. The messages of other errors do not change, even if
// they have several lines.
package errtext

import "strings"

// Join returns an error that wraps all of errs, or nil if all are nil. "; " separates the messages.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &joined{sep: "; ", errs: all}
}

// Wrap returns an error that wraps both, with the message "outer: inner". It returns outer if inner
// is nil.
func Wrap(outer, inner error) error {
	if inner == nil {
		return outer
	}
	return &joined{sep: ": ", errs: []error{outer, inner}}
}

// Prefix returns err with text and a colon before its message. err may not be nil.
func Prefix(text string, err error) error { return &prefixed{text, err} }

type joined struct {
	sep  string
	errs []error
}

func (j *joined) Error() string {
	b := new(strings.Builder)
	for i, err := range j.errs {
		if i == 0 {
			b.WriteString(err.Error())
			continue
		}
		b.WriteString(j.sep)
		b.WriteString(cut(err.Error()))
	}
	return b.String()
}

func (j *joined) Unwrap() []error { return j.errs }

type prefixed struct {
	text string
	err  error
}

func (p *prefixed) Error() string { return p.text + ": " + cut(p.err.Error()) }
func (p *prefixed) Unwrap() error { return p.err }

// cut removes the name of a package of this module from the beginning of text.
func cut(text string) string {
	name, rest, ok := strings.Cut(text, ": ")
	if !ok {
		return text
	}
	switch name {
	case "lockcore", "doctor", "guard", "idempotency", "fence", "sqlonce", "asynqmw", "cronmw", "httpmw", "rivermw":
		return rest
	}
	return text
}
