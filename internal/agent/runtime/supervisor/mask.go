package supervisor

import (
	"bytes"
	"slices"
	"strings"

	"trainyard/internal/api/wire"
	"trainyard/internal/tenant"
)

// maskText stands in the output for a secret.
const maskText = "***"

// patterns are the texts that are masked in the output of a run. Nil masks nothing.
type patterns struct {
	byFirst [256][][]byte // longest first
}

// newPatterns returns what is masked for these secrets: each of them, and each line of one with several, because a
// program may print it line by line. Shorter lines are not masked: they occur in other text too.
func newPatterns(secrets []wire.SecretValue) *patterns {
	if len(secrets) == 0 {
		return nil
	}

	var texts []string
	for _, s := range secrets {
		texts = append(texts, s.Value, strings.TrimSpace(s.Value))
		for line := range strings.Lines(s.Value) {
			texts = append(texts, strings.TrimSpace(line))
		}
	}

	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })

	p := &patterns{}
	seen := map[string]bool{}
	for _, text := range texts {
		if len(text) >= tenant.MinSecret && !seen[text] {
			seen[text] = true
			p.byFirst[text[0]] = append(p.byFirst[text[0]], []byte(text))
		}
	}

	return p
}

// text masks a text as a whole.
func (p *patterns) text(s string) string {
	if p == nil {
		return s
	}

	m := mask{patterns: p}

	return string(m.write([]byte(s))) + string(m.flush())
}

// mask masks one stream of output. What may be the beginning of a secret is kept until the rest comes or the stream
// ends, so that a secret is also found if it was written in pieces.
type mask struct {
	*patterns
	held   []byte
	masked int  // bytes at the beginning of held that are part of a secret
	inside bool // the text for the secret that they are part of was written
}

// write takes output and returns what of it, and of what was kept, can be written.
func (m *mask) write(data []byte) []byte {
	m.held = append(m.held, data...)
	return m.scan(false)
}

// flush returns what is left at the end of the stream.
func (m *mask) flush() []byte { return m.scan(true) }

// scan goes through what is held. Secrets may overlap: bytes are masked as long as they belong to any.
func (m *mask) scan(final bool) []byte {
	var out []byte
	i := 0

	for ; i < len(m.held); i++ {
		length, partial := m.at(m.held[i:])
		if partial && !final {
			break
		}

		m.masked = max(m.masked, length)
		if m.masked == 0 {
			m.inside = false
			out = append(out, m.held[i])
			continue
		}

		if !m.inside {
			m.inside = true
			out = append(out, maskText...)
		}

		m.masked--
		if m.masked == 0 {
			m.inside = false
		}
	}

	m.held = append(m.held[:0], m.held[i:]...)

	return out
}

// at returns how many bytes at the beginning of the text are a secret, and whether they may be the beginning of a
// longer one that is not complete yet.
func (m *mask) at(text []byte) (length int, partial bool) {
	for _, pattern := range m.byFirst[text[0]] {
		switch {
		case bytes.HasPrefix(text, pattern):
			return len(pattern), partial // the longest is first
		case len(text) < len(pattern) && bytes.HasPrefix(pattern, text):
			partial = true
		}
	}

	return 0, partial
}
