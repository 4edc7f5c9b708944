// Package exit holds the exit codes of the commands and how errors are printed.
//
// It is the only place that maps kinds of failure, and ways a job may end, to
// exit codes; the table is what "trainyard help exit-codes" prints. Errors go
// to the writer it is given, with control characters taken out, and never to
// standard output. The commands return its errors; cli ends the process.
package exit

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// The exit codes. A command that follows a job ends with the job's own code
// where that is 1 to 125.
const (
	OK          = 0
	Error       = 1
	Usage       = 2
	JobFailed   = 100
	NotFinished = 101
	NotFound    = 102
	Cancelled   = 103
	Refused     = 104
	Unreachable = 105
	Denied      = 106
	Interrupted = 130
)

// exitTable is the documented list, in order.
var exitTable = []struct {
	code  int
	means string
}{
	{OK, "done; a job that was followed succeeded"},
	{Error, "any other error"},
	{Usage, "the command line is wrong"},
	{JobFailed, "the job that was followed failed without an exit code of its own from 1 to 125"},
	{NotFinished, "the job had not finished when following it or waiting for it ended"},
	{NotFound, "not found"},
	{Cancelled, "the job that was followed was cancelled"},
	{Refused, "refused: invalid, over a quota, or not possible in the current state"},
	{Unreachable, "the server, or a part of it, cannot be reached"},
	{Denied, "not logged in, or permission denied"},
	{Interrupted, "interrupted by Ctrl-C; a followed job goes on"},
}

// kindExit is the exit code for each kind of failure.
var kindExit = map[fault.Kind]int{
	fault.Invalid: Refused, fault.Conflict: Refused, fault.OverLimit: Refused,
	fault.NotFound: NotFound, fault.Denied: Denied, fault.Unknown: Denied,
	fault.Unavailable: Unreachable, fault.Internal: Error,
}

// Code returns the exit code for an error.
func Code(err error) int {
	var result *Result
	var wrong *usageError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &result):
		return result.Code
	case errors.As(err, &wrong):
		return Usage
	case errors.Is(err, context.Canceled):
		return Interrupted
	}

	return kindExit[fault.KindOf(err)]
}

// OfJob returns the exit code that stands for how a job ended.
func OfJob(j api.Job) int {
	switch {
	case !j.State.Final():
		return NotFinished
	case j.State == job.Succeeded:
		return OK
	case j.State == job.Cancelled:
		return Cancelled
	case j.ExitCode != nil && *j.ExitCode >= 1 && *j.ExitCode <= 125:
		return *j.ExitCode
	}

	return JobFailed
}

// Result ends a command with a code. What there is to say has been said, unless
// Err is there to be shown.
type Result struct {
	Code int
	Err  error
}

// Error returns what Err says, or the code.
func (e *Result) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}

	return fmt.Sprintf("exit code %d", e.Code)
}

// Unwrap returns Err.
func (e *Result) Unwrap() error { return e.Err }

// With returns the error that ends a command with a code, nil for OK.
func With(code int) error {
	if code == OK {
		return nil
	}

	return &Result{Code: code}
}

// usageError is a mistake on the command line.
type usageError struct {
	message string
	command string
}

func (e *usageError) Error() string { return e.message }

// Usagef returns an error about how a command was called.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), command: cmd.CommandPath()}
}

// AsUsage makes an error of usage of what cobra found wrong.
func AsUsage(cmd *cobra.Command, err error) error {
	var wrong *usageError
	if errors.As(err, &wrong) || fault.KindOf(err) != fault.Internal {
		return err
	}

	return Usagef(cmd, "%v", err)
}

// NoArgs refuses arguments, and suggests a command where one was meant.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	if cmd.HasSubCommands() {
		message := fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0])
		cmd.SuggestionsMinimumDistance = 2
		if suggestions := cmd.SuggestionsFor(args[0]); len(suggestions) > 0 {
			message += ", did you mean " + strings.Join(suggestions, " or ") + "?"
		}

		return Usagef(cmd, "%s", table.Plain(message))
	}

	return Usagef(cmd, "%s takes no arguments", cmd.CommandPath())
}

// Args returns a check that there are at least lower and at most upper arguments (upper 0: any number).
func Args(lower, upper int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < lower {
			return Usagef(cmd, "missing argument: %s", what)
		}
		if upper > 0 && len(args) > upper {
			return Usagef(cmd, "unexpected argument %q", args[upper])
		}

		return nil
	}
}

// Clarify tells a server that is not the one of the login from one that does not answer.
func Clarify(err error) error {
	var wrong *tls.CertificateVerificationError
	if !errors.As(err, &wrong) {
		return err
	}

	return fault.New(fault.Denied, "ca_mismatch", "this is not the server you logged in to: %v", wrong.Err).
		WithRemedy("check the address and this machine's clock; if the server is a new one, log in again").WithCause(err)
}

// Document is an error as programs read it.
type Document struct {
	Detail   string     `json:"detail"`
	Code     string     `json:"code"`
	Kind     string     `json:"kind"`
	Field    string     `json:"field,omitempty"`
	Line     int        `json:"line,omitempty"`
	Column   int        `json:"column,omitempty"`
	Remedy   string     `json:"remedy,omitempty"`
	ExitCode int        `json:"exit_code,omitempty"`
	Errors   []Document `json:"errors,omitempty"`
}

// Show writes an error for people, or as JSON for programs.
func Show(w io.Writer, err error, asJSON bool) {
	code := Code(err)
	var result *Result
	if errors.As(err, &result) && result.Err == nil {
		return
	}

	if errors.Is(err, context.Canceled) && result == nil {
		_, _ = fmt.Fprintln(w, "interrupted")
		return
	}

	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(DocumentOf(err, code)) // there is no other place to complain

		return
	}

	var list fault.List
	var one *fault.Error

	var wrong *usageError
	switch {
	case errors.As(err, &list):
		for _, e := range list {
			_, _ = io.WriteString(w, errorText(e, e))
		}
	case errors.As(err, &one):
		_, _ = io.WriteString(w, errorText(err, one))
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintf(w, "error: %s\n  see: %s --help\n", table.Plain(wrong.message), wrong.command)
	default:
		_, _ = fmt.Fprintf(w, "error: %s\n", table.Plain(err.Error()))
	}
}

// errorText writes one fault with its place and its remedy. What err, which
// holds e, says before e's own sentence is kept.
func errorText(err error, e *fault.Error) string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}

	if e.Line > 0 {
		text = fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, text)
	}

	before, _, _ := strings.Cut(err.Error(), e.Error())
	text = "error: " + table.Plain(before+text) + "\n"
	if e.Remedy != "" {
		text += "  " + table.Plain(e.Remedy) + "\n"
	}

	return text
}

// DocumentOf describes an error; a code of 0 is left out.
func DocumentOf(err error, code int) Document {
	var list fault.List
	var one *fault.Error
	switch {
	case errors.As(err, &list) && len(list) > 0:
		doc := Document{
			Detail: humanize.Count(len(list), "mistake"), Code: list[0].Code, Kind: string(list[0].Kind), ExitCode: code,
		}
		for _, e := range list {
			doc.Errors = append(doc.Errors, DocumentOf(e, 0))
		}

		return doc
	case errors.As(err, &one):
		return Document{
			Detail: one.Message, Code: one.Code, Kind: string(one.Kind), Field: one.Field,
			Line: one.Line, Column: one.Column, Remedy: one.Remedy, ExitCode: code,
		}
	case code == Usage:
		return Document{Detail: err.Error(), Code: "usage", Kind: string(fault.Invalid), ExitCode: code}
	}

	return Document{Detail: err.Error(), Code: "internal", Kind: string(fault.Internal), ExitCode: code}
}

// Topic is the help topic with the table of exit codes.
func Topic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes of all commands:\n\n")

	for _, e := range exitTable {
		_, _ = fmt.Fprintf(&text, "  %3d  %s\n", e.code, e.means)
	}

	text.WriteString("\nsubmit, run, logs -f and wait follow a job and end with the job's own exit code\n" +
		"where it failed with one from 1 to 125. Of several jobs the first that did not succeed counts.")

	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: text.String()}
}
