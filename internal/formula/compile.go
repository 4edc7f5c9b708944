package formula

import (
	"math"
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/suggest"
)

// Compile reads a formula over these names. A mistake is a *fault.Error with its
// line and column; a name that is not known comes with the nearest that is.
func Compile(text string, names []string) (*Program, error) {
	if len(text) > MaxText {
		return nil, bad(text, 0, "a formula must have at most %d bytes, got %d", MaxText, len(text))
	}

	list, err := words(text)
	if err != nil {
		return nil, err
	}

	c := &compiler{text: text, words: list, names: names, uses: make([]bool, len(names))}
	if c.peek().kind == tokenEnd {
		return nil, bad(text, 0, "the formula is empty").WithRemedy("write an expression, e.g. weight * speedup")
	}

	c.choice()

	if c.err != nil {
		return nil, c.err
	}

	if t := c.peek(); t.kind != tokenEnd {
		return nil, bad(text, t.at, "expected an operator, got %q", t.text).
			WithRemedy("put an operator before it, or close a parenthesis")
	}

	p := &Program{text: text, steps: c.steps, names: slices.Clone(names), uses: c.uses}
	if !slices.Contains(p.uses, true) {
		if v := p.work(nil, nil); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, bad(text, 0, "the formula is a constant without a finite value").
				WithRemedy("remove the division by zero or the overflow")
		}
	}

	return p, nil
}

// compiler turns tokens into steps. After a mistake it does nothing more.
type compiler struct {
	text  string
	words []token
	at    int
	names []string
	uses  []bool
	steps []step
	depth int
	err   *fault.Error
}

func (c *compiler) peek() *token { return &c.words[c.at] }

// accept takes the next token if it is this sign.
func (c *compiler) accept(sign string) bool {
	if t := c.peek(); c.err == nil && t.kind == tokenSign && t.text == sign {
		c.at++
		return true
	}

	return false
}

// expect takes the next token, which must be this sign.
func (c *compiler) expect(sign, where string) {
	if c.err == nil && !c.accept(sign) {
		c.fail(c.peek().at, "%q is missing %s", sign, where)
	}
}

func (c *compiler) fail(at int, format string, args ...any) {
	if c.err == nil {
		c.err = bad(c.text, at, format, args...)
	}
}

// remedy adds a fix to the mistake, if it has none yet.
func (c *compiler) remedy(format string, args ...any) {
	if c.err != nil && c.err.Remedy == "" {
		c.err = c.err.WithRemedy(format, args...)
	}
}

// emit adds a step that does something to the last values.
func (c *compiler) emit(do operation, takes int) { c.push(step{do: do, takes: takes}) }

func (c *compiler) push(s step) {
	if len(c.steps) == MaxSteps {
		c.fail(c.peek().at, "a formula must have at most %d parts, got more", MaxSteps)
		c.remedy("shorten the formula")
	}

	if c.err == nil {
		c.steps = append(c.steps, s)
	}
}

// enter goes one level down, and reports whether that is allowed.
func (c *compiler) enter() bool {
	c.depth++
	if c.depth > MaxDepth {
		c.fail(c.peek().at, "a formula must be nested at most %d levels deep, got more", MaxDepth)
		c.remedy("remove parentheses")
	}

	return c.err == nil
}

func (c *compiler) leave() { c.depth-- }

// choice is c ? a : b, or what binds tighter.
func (c *compiler) choice() {
	c.between(1)

	if !c.accept("?") || !c.enter() {
		return
	}

	defer c.leave()

	c.choice()
	c.expect(":", "between the two sides of a conditional")
	c.choice()
	c.emit(choose, 3)
}

// between is values with operators between them that bind at least so tightly.
func (c *compiler) between(tier int) {
	c.prefixed()
	compared := false

	for c.err == nil {
		t := c.peek()
		b, known := binary[t.text]
		if t.kind != tokenSign || !known || b.tier < tier {
			return
		}

		if b.tier == compares {
			if compared {
				c.fail(t.at, "comparisons cannot be chained")
				c.err = c.err.WithRemedy("write a < b && b < c")
				return
			}

			compared = true
		}

		c.at++
		c.between(b.tier + 1)
		c.emit(b.do, 2)
	}
}

// prefixed is a value with - or ! before it.
func (c *compiler) prefixed() {
	if !c.enter() {
		return
	}

	defer c.leave()

	switch {
	case c.accept("-"):
		c.prefixed()
		c.emit(negate, 1)
	case c.accept("!"):
		c.prefixed()
		c.emit(not, 1)
	case c.accept("+"):
		c.prefixed()
	default:
		c.power()
	}
}

// power is a value, raised to another if ^ follows.
func (c *compiler) power() {
	c.value()

	if c.accept("^") {
		c.prefixed()
		c.emit(power, 2)
	}
}

// value is a number, a name, a function or something in brackets.
func (c *compiler) value() {
	t := c.peek()
	switch {
	case c.err != nil:
	case t.kind == tokenNumber:
		c.at++
		c.push(step{num: t.num, name: -1})
	case t.kind == tokenName:
		c.at++
		if c.accept("(") {
			c.call(t)
		} else {
			c.name(t)
		}
	case c.accept("("):
		c.choice()
		c.expect(")", "to close the parenthesis")
	case t.kind == tokenEnd:
		c.fail(t.at, "expected a value, got the end of the formula")
		c.remedy("complete the last operation, or remove its operator")
	default:
		c.fail(t.at, "expected a number, a name or an opening parenthesis, got %q", t.text)
	}
}

func (c *compiler) name(t *token) {
	if at := slices.Index(c.names, t.text); at >= 0 {
		c.uses[at] = true
		c.push(step{name: at})
		return
	}

	if _, known := functions[t.text]; known {
		c.fail(t.at, "the function %s needs arguments in parentheses", t.text)
		c.remedy("write %s(…)", t.text)
		return
	}

	c.fail(t.at, "unknown name %q", t.text)
	c.suggest(t.text, c.names)
}

// call is a function, up to its closing bracket.
func (c *compiler) call(t *token) {
	f, known := functions[t.text]
	if !known {
		c.fail(t.at, "unknown function %q", t.text)
		list := make([]string, 0, len(functions))
		for name := range functions {
			list = append(list, name)
		}

		slices.Sort(list)
		c.suggest(t.text, list)

		return
	}

	n := 0
	for {
		c.choice()
		n++

		if !c.accept(",") {
			break
		}
	}

	c.expect(")", "to close "+t.text+"(")

	switch {
	case f.more && n < 2:
		c.fail(t.at, "%s takes two or more arguments, got %d", t.text, n)
	case !f.more && n != 1:
		c.fail(t.at, "%s takes one argument, got %d", t.text, n)
	}

	c.emit(f.do, n)
}

// suggest adds the closest known word to the mistake, or all known words.
func (c *compiler) suggest(word string, known []string) {
	switch closest := suggest.Closest(word, known); {
	case c.err == nil:
	case closest != "":
		c.err = c.err.WithRemedy("did you mean %s?", closest)
	case len(known) > 0:
		c.err = c.err.WithRemedy("use one of %s", strings.Join(known, ", "))
	}
}
