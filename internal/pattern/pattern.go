// Package pattern compiles regular expressions that come from outside, with a bound on what matching them costs.
//
// Matching takes time in proportion to the text and to the size of the expression, so that a short expression with
// nested counts can be hundreds of times as expensive as a plain one. Compile refuses those that are too large before
// it builds anything, and Cost says how much work a text is, so that whoever matches can stay within a budget. The
// server searches output with it, and agents find metrics.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// MaxText is the longest expression in bytes.
	MaxText = 1000
	// MaxSize is the greatest size of an expression: about the number of instructions of its program, with
	// counts such as x{50} written out.
	MaxSize = 500
)

// Pattern is a regular expression with a bounded cost.
type Pattern struct {
	*regexp.Regexp

	perByte int64
}

// Compile compiles an expression. The error says in one clause what is wrong with it.
func Compile(text string) (*Pattern, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("must have at most %d bytes, got %d", MaxText, len(text))
	}

	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		var wrong *syntax.Error
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("%s: %q", wrong.Code, wrong.Expr)
		}

		return nil, err
	}

	total := size(tree)
	if total > MaxSize {
		return nil, fmt.Errorf("too expensive: its size with all counts written out is %d, the limit is %d", total, MaxSize)
	}

	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}

	p := &Pattern{Regexp: re, perByte: int64(total)}
	if _, literal := re.LiteralPrefix(); literal {
		p.perByte = 1 // found by plain search
	}

	return p, nil
}

// Cost is how many steps matching a text of so many bytes takes at most.
func (p *Pattern) Cost(bytes int) int64 { return int64(bytes+1) * p.perByte }

// size is about the number of instructions of an expression's program. It stops counting far above MaxSize.
func size(re *syntax.Regexp) int {
	const enough = 1 << 20

	total := 1
	if re.Op == syntax.OpLiteral {
		total = len(re.Rune)
	}

	for _, sub := range re.Sub {
		total = min(total+size(sub), enough)
	}

	if re.Op == syntax.OpRepeat {
		total *= max(re.Max, re.Min+1) // the last of x{2,} is a loop
	}

	return min(total, enough)
}
