package formula

import (
	"strconv"
	"unicode/utf8"

	"trainyard/internal/fault"
)

// token is a word of a formula.
type token struct {
	kind tokenKind
	text string
	num  float64
	at   int // byte in the text
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenNumber
	tokenName
	tokenSign // an operator, bracket or comma
)

// signs are the operators and brackets, longer ones before those they begin with.
var signs = []string{
	"<=",
	">=",
	"==",
	"!=",
	"&&",
	"||",
	"+",
	"-",
	"*",
	"/",
	"^",
	"<",
	">",
	"!",
	"?",
	":",
	"(",
	")",
	",",
}

// words splits a formula into tokens. The last is the end.
func words(text string) ([]token, error) {
	var list []token
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c >= '0' && c <= '9' || c == '.':
			t, err := number(text, i)
			if err != nil {
				return nil, err
			}

			list = append(list, t)
			i += len(t.text)
		case letter(c):
			end := i + 1
			for end < len(text) && (letter(text[end]) || text[end] >= '0' && text[end] <= '9') {
				end++
			}

			list = append(list, token{kind: tokenName, text: text[i:end], at: i})
			i = end
		default:
			t, err := sign(text, i)
			if err != nil {
				return nil, err
			}

			list = append(list, t)
			i += len(t.text)
		}

		if len(list) > 3*MaxSteps {
			return nil, bad(text, i, "a formula must have at most %d parts, got more", MaxSteps)
		}
	}

	return append(list, token{kind: tokenEnd, at: len(text)}), nil
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// number reads digits with a point and an exponent.
func number(text string, at int) (token, error) {
	end := at
	for end < len(text) {
		c := text[end]
		exponent := (c == '+' || c == '-') && end > at && (text[end-1] == 'e' || text[end-1] == 'E')
		if (c < '0' || c > '9') && c != '.' && !letter(c) && !exponent {
			break
		}

		end++
	}

	word := text[at:end]
	for _, c := range []byte(word) { // no hexadecimal, no underscores, no "inf"
		if letter(c) && c != 'e' && c != 'E' {
			return token{}, bad(text, at, "expected a decimal number, got %q", word).WithRemedy("write it as 1.5 or 2e-3")
		}
	}

	v, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return token{}, bad(text, at, "expected a finite number, got %q", word).
			WithRemedy("write it as 1.5 or 2e-3")
	}

	return token{kind: tokenNumber, text: word, num: v, at: at}, nil
}

func sign(text string, at int) (token, error) {
	for _, s := range signs {
		if len(text)-at >= len(s) && text[at:at+len(s)] == s {
			return token{kind: tokenSign, text: s, at: at}, nil
		}
	}

	r, _ := utf8.DecodeRuneInString(text[at:])
	err := bad(text, at, "unexpected %q", r)

	switch r {
	case '=':
		err = err.WithRemedy("write == to compare")
	case '&', '|':
		err = err.WithRemedy("write %c%c", r, r)
	}

	return token{}, err
}

// bad is an error at a place in the text.
func bad(text string, at int, format string, args ...any) *fault.Error {
	e := fault.New(fault.Invalid, "bad_formula", format, args...)
	e.Line, e.Column = 1, 1
	for i, r := range text {
		if i >= at {
			break
		}

		e.Column++
		if r == '\n' {
			e.Line, e.Column = e.Line+1, 1
		}
	}

	return e
}
