package rundir

import (
	"bytes"
	"strings"

	"trainyard/internal/job"
)

// Ending is how and why a rank ended.
type Ending struct {
	Code      int
	Signal    string
	Cause     job.Cause
	Reason    string
	Signalled bool      // see Status.Signalled
	Needed    job.Bytes // see Status.Needed
	Restore   *job.RestoreFailure
	Error     string // see Status.Error
}

// maxQuote is how many bytes of a line of output a reason quotes.
const maxQuote = 300

// LastLine returns the last non-empty line of some output, clipped for a reason.
func LastLine(output []byte) string {
	text := bytes.TrimRight(output, "\r\n\t \x00")
	if i := bytes.LastIndexAny(text, "\r\n"); i >= 0 {
		text = text[i+1:]
	}

	return Clip(string(text))
}

// QuoteLastLine returns the last line of the output as the end of a reason, "" if there is none.
func QuoteLastLine(line string) string {
	if line == "" {
		return ""
	}

	return "; last line of output: " + line
}

// Clip makes a line of output printable and short enough to be quoted in a reason.
func Clip(s string) string { return ClipTo(s, maxQuote) }

// ClipTo makes a text printable and at most as long as is given, in bytes.
func ClipTo(s string, most int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(strings.Map(printable, s), "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}

	return s
}

// printable drops control characters.
func printable(c rune) rune {
	if c < ' ' && c != '\t' || c == 0x7f {
		return -1
	}

	return c
}
