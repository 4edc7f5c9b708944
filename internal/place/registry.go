package place

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// Entry is a policy as it is offered to who runs a yard or a simulation.
type Entry struct {
	Name string
	Rule string // what it does, in one sentence
	// New makes the policy. It asks the settings for its parameters, each with what
	// holds without it; asking is what makes them known.
	New func(s *Settings) (Policy, error)
}

// Registry is all policies that can be named. It is built in one place and passed down.
type Registry []Entry

// Plain is the entry of a policy without parameters.
func Plain(name, rule string, make func() Policy) Entry {
	return Entry{name, rule, func(*Settings) (Policy, error) { return make(), nil }}
}

// Names lists the policies by name.
func (r Registry) Names() []string {
	names := make([]string, len(r))
	for i := range r {
		names[i] = r[i].Name
	}

	slices.Sort(names)

	return names
}

// Find returns the entry with a name.
func (r Registry) Find(name string) (Entry, error) {
	at := slices.IndexFunc(r, func(e Entry) bool { return e.Name == name })
	if at < 0 {
		return Entry{}, fault.New(fault.Invalid, "unknown_policy", "there is no policy %q", name).WithField("policy").
			WithRemedy("use one of %s", strings.Join(r.Names(), ", "))
	}

	return r[at], nil
}

// Make returns a maker of the policy that a text names. Parameters stand behind
// colons, and a value with a colon or a comma in it between quotes:
// harvest:ahead=2m:objective="speedup > 2 ? 1 : 0".
func (r Registry) Make(text string) (func() Policy, error) {
	parts, err := split(text, ':')
	if err != nil {
		return nil, err
	}

	e, err := r.Find(parts[0])
	if err != nil {
		return nil, err
	}

	given := map[string]string{}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		if _, twice := given[key]; !ok || twice {
			return nil, badParameter("%q is no parameter: write each once, as in ahead=2m", part)
		}

		given[key] = strings.Trim(value, `"`)
	}

	make := func() (Policy, error) {
		s := &Settings{given: given}
		p, err := e.New(s)
		if err == nil {
			err = s.settled(e.Name)
		}

		return p, err
	}

	if _, err := make(); err != nil {
		return nil, err
	}

	return func() Policy {
		p, _ := make() // it went well above, and the same settings make the same policy
		return p
	}, nil
}

// List returns makers of several policies whose texts are separated by commas.
func (r Registry) List(texts string) (names []string, makers []func() Policy, err error) {
	names, err = split(texts, ',')
	if err != nil {
		return nil, nil, err
	}

	for _, text := range names {
		m, err := r.Make(text)
		if err != nil {
			return nil, nil, err
		}

		makers = append(makers, m)
	}

	return names, makers, nil
}

// Params lists the parameters of a policy, in the order in which it asks for them.
func (r Registry) Params(name string) ([]Param, error) {
	e, err := r.Find(name)
	if err != nil {
		return nil, err
	}

	s := &Settings{}
	_, err = e.New(s)

	return s.asked, err
}

// split divides a text at a character that is not between quotes.
func split(text string, at byte) ([]string, error) {
	var parts []string
	quoted, from := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == at && !quoted:
			parts = append(parts, text[from:i])
			from = i + 1
		}
	}

	if quoted {
		return nil, badParameter("a quote is not closed in %q", text)
	}

	return append(parts, text[from:]), nil
}

func badParameter(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "bad_parameter", format, args...).WithField("policy")
}

// Param is a parameter of a policy.
type Param struct {
	Name     string
	Standard string // what holds without it
	Help     string
}

// Settings are the parameters of a policy as they were given.
type Settings struct {
	given map[string]string
	asked []Param
	err   error
}

// take notes that a parameter was asked for, and returns it if it was given.
func (s *Settings) take(name, standard, help string) (string, bool) {
	s.asked = append(s.asked, Param{name, standard, help})
	text, ok := s.given[name]
	return text, ok
}

func (s *Settings) wrong(name, text, what string) {
	if s.err == nil {
		s.err = badParameter("%s=%s: it must be %s", name, text, what)
	}
}

// settled reports what is wrong with the settings once the policy has asked for all it knows.
func (s *Settings) settled(policy string) error {
	if s.err != nil {
		return s.err
	}

	for _, key := range sortedKeys(s.given) {
		if slices.ContainsFunc(s.asked, func(p Param) bool { return p.Name == key }) {
			continue
		}

		e := badParameter("policy %s has no parameter %q", policy, key)
		if len(s.asked) == 0 {
			return e.WithRemedy("it has none")
		}

		names := make([]string, len(s.asked))
		for i, p := range s.asked {
			names[i] = p.Name
		}

		return e.WithRemedy("it has %s", strings.Join(names, ", "))
	}

	return nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}

	slices.SortFunc(keys, cmp.Compare)

	return keys
}

// Text returns a parameter as it is written.
func (s *Settings) Text(name, standard, help string) string {
	if text, ok := s.take(name, standard, help); ok {
		return text
	}

	return standard
}

// Number returns a parameter that is a number within bounds.
func (s *Settings) Number(name string, standard, least, most float64, help string) float64 {
	text, ok := s.take(name, strconv.FormatFloat(standard, 'g', -1, 64), help)
	if !ok {
		return standard
	}

	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= least && f <= most) {
		s.wrong(
			name,
			text,
			"a number from "+strconv.FormatFloat(least, 'g', -1, 64)+" to "+strconv.FormatFloat(most, 'g', -1, 64),
		)
	}

	return f
}

// Count returns a parameter that is a whole number within bounds.
func (s *Settings) Count(name string, standard, least, most int, help string) int {
	text, ok := s.take(name, strconv.Itoa(standard), help)
	if !ok {
		return standard
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		s.wrong(name, text, "a whole number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}

	return n
}

// Time returns a parameter that is a length of time.
func (s *Settings) Time(name string, standard time.Duration, help string) time.Duration {
	text, ok := s.take(name, job.Duration(standard).String(), help)
	if !ok {
		return standard
	}

	d, err := job.ParseDuration(text)
	if err != nil || d < 0 {
		s.wrong(name, text, "a length of time, as 90s or 2m")
	}

	return time.Duration(d)
}

// Choice returns a parameter that is one of some words, the first without it.
func (s *Settings) Choice(name, help string, words ...string) string {
	text, ok := s.take(name, words[0], help)
	if !ok {
		return words[0]
	}

	if !slices.Contains(words, text) {
		s.wrong(name, text, "one of "+strings.Join(words, ", "))
	}

	return text
}
