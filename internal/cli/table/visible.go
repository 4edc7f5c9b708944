package table

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Visible makes the control characters of a text visible, so that it can do nothing to the terminal that shows it:
// ESC becomes ^[, BEL ^G, the C1 control characters \x80 to \x9f. What formats text passes: tabs, line ends, carriage
// returns, as progress bars use them, and the sequences that set colours and weight (ESC [ … m).
func Visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, acts) < 0 {
		return text
	}

	var out strings.Builder

	for len(text) > 0 {
		if n := sgr(text); n > 0 {
			out.WriteString(text[:n])
			text = text[n:]
			continue
		}

		c, n := utf8.DecodeRuneInString(text)
		if n == 1 {
			c = rune(text[0]) // of a byte that is not UTF-8, what a terminal that does not use it takes it for
		}

		switch {
		case !acts(c):
			out.WriteString(text[:n])
		case c < ' ' || c == del:
			out.WriteString("^" + string(c^0x40))
		default:
			_, _ = fmt.Fprintf(&out, `\x%02x`, c)
		}

		text = text[n:]
	}

	return out.String()
}

const del = 0x7f

// acts reports whether a terminal does something other than show the character or start a new line or column.
func acts(c rune) bool {
	if c == '\t' || c == '\n' || c == '\r' {
		return false
	}

	return c < ' ' || c >= del && c < 0xa0
}

// sgr returns the length of the sequence at the start of a text that sets colours and weight, 0 if there is none.
func sgr(text string) int {
	rest, ok := strings.CutPrefix(text, "\x1b[")
	if !ok {
		return 0
	}

	end := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != ';' && c != ':' })
	if end < 0 || rest[end] != 'm' {
		return 0
	}

	return len(text) - len(rest) + end + 1
}
