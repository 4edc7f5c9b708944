// Package fault holds the kinds of failure that cross package boundaries.
//
// Every error that a person or a program outside may see is an *Error: a kind
// that says what the caller can do about it, a stable code for programs, a
// sentence for people, the field it is about and the remedy. The cause is for
// the log only. It never decides how a kind is shown: server alone maps kinds
// to HTTP statuses, cli alone to exit codes.
package fault

import (
	"errors"
	"fmt"
)

// Kind classifies a failure by what the caller can do about it.
type Kind string

// The kinds. An error that is not an *Error is Internal.
const (
	Invalid     Kind = "invalid"      // the request can never succeed as written
	NotFound    Kind = "not_found"    // the named thing does not exist
	Conflict    Kind = "conflict"     // the thing is in another state; look again
	Denied      Kind = "denied"       // the caller may not do this
	Unknown     Kind = "unknown_user" // the caller did not say who they are
	OverLimit   Kind = "over_limit"   // too much or too often; allowed later or smaller
	Unavailable Kind = "unavailable"  // a part is down; try again
	Internal    Kind = "internal"     // a bug or an unclassified failure
)

// Kinds lists every kind, so that tests can check that each is mapped.
func Kinds() []Kind {
	return []Kind{Invalid, NotFound, Conflict, Denied, Unknown, OverLimit, Unavailable, Internal}
}

// Error is a failure that may be shown outside.
type Error struct {
	Kind    Kind
	Code    string // stable, for programs: "job_not_found"
	Message string // one sentence, for people
	Field   string // path of the field it is about: "resources.gpus"
	Line    int    // in the job file, from 1; 0 if it has no place there
	Column  int
	Remedy  string // what to do about it
	Cause   error  // for the log only
}

// Error returns the sentence for people, with place and remedy.
func (e *Error) Error() string {
	msg := e.Message
	if e.Field != "" {
		msg = e.Field + ": " + msg
	}

	if e.Line > 0 {
		msg = fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, msg)
	}

	if e.Remedy != "" {
		msg += " (" + e.Remedy + ")"
	}

	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of a kind, with a stable code and a sentence.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithField returns a copy that names the field the error is about.
func (e *Error) WithField(field string) *Error {
	c := *e
	c.Field = field
	return &c
}

// WithRemedy returns a copy that says what to do about it.
func (e *Error) WithRemedy(format string, args ...any) *Error {
	c := *e
	c.Remedy = fmt.Sprintf(format, args...)
	return &c
}

// WithCause returns a copy that keeps the cause for the log.
func (e *Error) WithCause(err error) *Error {
	c := *e
	c.Cause = err
	return &c
}

// KindOf returns the kind of err: "" for nil, Internal for an error that is not an *Error.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}

	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}

	return Internal
}

// List is several errors found at once, such as all mistakes of one job file.
type List []*Error

// Error joins the sentences, one a line.
func (l List) Error() string {
	msg := ""
	for i, e := range l {
		if i > 0 {
			msg += "\n"
		}

		msg += e.Error()
	}

	return msg
}

// Unwrap gives the single errors to errors.Is and errors.As.
func (l List) Unwrap() []error {
	errs := make([]error, len(l))
	for i, e := range l {
		errs[i] = e
	}

	return errs
}

// OrNil returns the list as an error, or nil if it is empty.
func (l List) OrNil() error {
	if len(l) == 0 {
		return nil
	}

	return l
}

// WithoutPlace takes lines and columns out of the errors of a list, which is about a text that the person did not
// write. Other errors stay as they are.
func WithoutPlace(err error) error {
	list, ok := errors.AsType[List](err)
	if !ok {
		return err
	}

	var plain List
	for _, e := range list {
		c := *e
		c.Line, c.Column = 0, 0
		plain = append(plain, &c)
	}

	return plain
}
