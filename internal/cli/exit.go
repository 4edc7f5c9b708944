package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// The exit codes. A command that follows a job ends with the job's own code
// where that is 1 to 125.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitJobFailed   = 100
	ExitNotFinished = 101
	ExitNotFound    = 102
	ExitCancelled   = 103
	ExitRefused     = 104
	ExitUnreachable = 105
	ExitDenied      = 106
	ExitInterrupted = 130
)

// exitTable is the documented list, in order.
var exitTable = []struct {
	code  int
	means string
}{
	{ExitOK, "done; a job that was followed succeeded"},
	{ExitError, "something went wrong that has no code of its own"},
	{ExitUsage, "the command line is wrong"},
	{ExitJobFailed, "the job that was followed failed without an exit code of its own from 1 to 125"},
	{ExitNotFinished, "the job had not finished when waiting for it ended"},
	{ExitNotFound, "there is no such thing"},
	{ExitCancelled, "the job that was followed was cancelled"},
	{ExitRefused, "refused: not valid, over a limit, or not possible in the present state"},
	{ExitUnreachable, "the yard, or a part of it, cannot be reached"},
	{ExitDenied, "not logged in, or not allowed"},
	{ExitInterrupted, "left by Ctrl-C; a job goes on"},
}

// kindExit is the exit code for each kind of failure.
var kindExit = map[fault.Kind]int{
	fault.Invalid: ExitRefused, fault.Conflict: ExitRefused, fault.OverLimit: ExitRefused,
	fault.NotFound: ExitNotFound, fault.Denied: ExitDenied, fault.Unknown: ExitDenied,
	fault.Unavailable: ExitUnreachable, fault.Internal: ExitError,
}

// ExitCode returns the exit code for an error.
func ExitCode(err error) int {
	var result *resultError
	var wrong *usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &result):
		return result.code
	case errors.As(err, &wrong):
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return kindExit[fault.KindOf(err)]
}

// jobExit returns the exit code that stands for how a job ended.
func jobExit(j api.Job) int {
	switch {
	case !j.State.Final():
		return ExitNotFinished
	case j.State == job.Succeeded:
		return ExitOK
	case j.State == job.Cancelled:
		return ExitCancelled
	case j.ExitCode != nil && *j.ExitCode >= 1 && *j.ExitCode <= 125:
		return *j.ExitCode
	}
	return ExitJobFailed
}

// resultError ends a command with a code. What there is to say has been said,
// unless err is there to be shown.
type resultError struct {
	code int
	err  error
}

func (e *resultError) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("exit code %d", e.code)
}

func (e *resultError) Unwrap() error { return e.err }

// exitWith returns the error that ends a command with a code, nil for 0.
func exitWith(code int) error {
	if code == ExitOK {
		return nil
	}
	return &resultError{code: code}
}

// usageError is a mistake on the command line.
type usageError struct {
	message string
	command string
}

func (e *usageError) Error() string { return e.message }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), command: cmd.CommandPath()}
}

// asUsage makes an error of usage of what cobra found wrong.
func asUsage(cmd *cobra.Command, err error) error {
	var wrong *usageError
	if errors.As(err, &wrong) || fault.KindOf(err) != fault.Internal {
		return err
	}
	return usagef(cmd, "%v", err)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		message := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			message += ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef(cmd, "%s", table.Plain(message))
	}
	return usagef(cmd, "%s takes no arguments", cmd.CommandPath())
}

// needs returns a check that there are from least to most arguments (most 0: any number).
func needs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usagef(cmd, "say which %s", what)
		}
		if most > 0 && len(args) > most {
			return usagef(cmd, "too many arguments from %q on", args[most])
		}
		return nil
	}
}

// errorDoc is an error as programs read it from standard error.
type errorDoc struct {
	Detail   string     `json:"detail"`
	Code     string     `json:"code"`
	Kind     string     `json:"kind"`
	Field    string     `json:"field,omitempty"`
	Line     int        `json:"line,omitempty"`
	Column   int        `json:"column,omitempty"`
	Remedy   string     `json:"remedy,omitempty"`
	ExitCode int        `json:"exit_code,omitempty"`
	Errors   []errorDoc `json:"errors,omitempty"`
}

// showError writes an error for people, or for programs where they asked for JSON.
func showError(w io.Writer, err error, code int, format string) {
	var result *resultError
	if errors.As(err, &result) && result.err == nil {
		return
	}
	if errors.Is(err, context.Canceled) && result == nil {
		_, _ = fmt.Fprintln(w, "interrupted")
		return
	}
	if format == outJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(documentOf(err, code)) // there is no other place to complain
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

func documentOf(err error, code int) errorDoc {
	var list fault.List
	var one *fault.Error
	switch {
	case errors.As(err, &list) && len(list) > 0:
		doc := errorDoc{
			Detail: table.Count(len(list), "mistake"), Code: list[0].Code, Kind: string(list[0].Kind), ExitCode: code,
		}
		for _, e := range list {
			doc.Errors = append(doc.Errors, documentOf(e, 0))
		}
		return doc
	case errors.As(err, &one):
		return errorDoc{
			Detail: one.Message, Code: one.Code, Kind: string(one.Kind), Field: one.Field,
			Line: one.Line, Column: one.Column, Remedy: one.Remedy, ExitCode: code,
		}
	case code == ExitUsage:
		return errorDoc{Detail: err.Error(), Code: "usage", Kind: string(fault.Invalid), ExitCode: code}
	}
	return errorDoc{Detail: err.Error(), Code: "internal", Kind: string(fault.Internal), ExitCode: code}
}

// exitCodes is the help topic with the table of exit codes.
func exitCodes() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes of all commands:\n\n")
	for _, e := range exitTable {
		_, _ = fmt.Fprintf(&text, "  %3d  %s\n", e.code, e.means)
	}
	text.WriteString("\nsubmit, run, logs -f and wait follow a job and end with the job's own exit code\n" +
		"where it failed with one from 1 to 125. Of several jobs the first that did not succeed counts.")
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: text.String()}
}
