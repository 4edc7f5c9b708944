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

// Entry is a policy that an operator or a simulation can choose by name.
type Entry struct {
	Name string
	Rule string // what it does, in one sentence
	// New makes the policy. It reads its parameters from the settings, each with a default;
	// reading a parameter is what declares it.
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
		return Entry{}, fault.New(fault.Invalid, "unknown_policy", "unknown policy %q", name).WithField("policy").
			WithRemedy("use one of %s", strings.Join(r.Names(), ", "))
	}

	return r[at], nil
}

// Make returns a constructor of the policy that a text names. Parameters follow after colons;
// a value that contains a colon or a comma must be quoted:
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

	values := map[string]string{}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		if _, duplicate := values[key]; !ok || duplicate {
			return nil, badParameter("invalid parameter %q: write name=value, each name once, e.g. ahead=2m", part)
		}

		values[key] = strings.Trim(value, `"`)
	}

	make := func() (Policy, error) {
		s := &Settings{values: values}
		p, err := e.New(s)
		if err == nil {
			err = s.check(e.Name)
		}

		return p, err
	}

	if _, err := make(); err != nil {
		return nil, err
	}

	return func() Policy {
		p, _ := make() // it succeeded above, and the same settings make the same policy
		return p
	}, nil
}

// List returns constructors of several policies whose texts are separated by commas.
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

// Params lists the parameters of a policy, in the order in which it declares them.
func (r Registry) Params(name string) ([]Param, error) {
	e, err := r.Find(name)
	if err != nil {
		return nil, err
	}

	s := &Settings{}
	_, err = e.New(s)

	return s.params, err
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
		return nil, badParameter("unclosed quote in %q", text)
	}

	return append(parts, text[from:]), nil
}

func badParameter(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "bad_parameter", format, args...).WithField("policy")
}

// Param is a parameter of a policy.
type Param struct {
	Name     string
	Standard string // default value
	Help     string
	Common   bool `json:",omitempty"` // all policies that provision by the common rule have it
}

// Settings are the parameters of a policy as they were given.
type Settings struct {
	values map[string]string
	params []Param
	common bool // the parameters that are read now are common ones
	err    error
}

// Common reads parameters that several policies have in common.
func (s *Settings) Common(read func()) {
	s.common = true
	read()
	s.common = false
}

// take declares a parameter, and returns its value if one was given.
func (s *Settings) take(name, standard, help string) (string, bool) {
	declared := slices.ContainsFunc(s.params, func(p Param) bool { return p.Name == name })
	if !declared { // else a part of the policy reads it as well
		s.params = append(s.params, Param{name, standard, help, s.common})
	}

	text, ok := s.values[name]

	return text, ok
}

func (s *Settings) reject(name, text, what string) {
	if s.err == nil {
		s.err = badParameter("%s must be %s, got %s", name, what, text)
	}
}

// check reports errors in the settings once the policy has declared all its parameters.
func (s *Settings) check(policy string) error {
	if s.err != nil {
		return s.err
	}

	for _, key := range sortedKeys(s.values) {
		if slices.ContainsFunc(s.params, func(p Param) bool { return p.Name == key }) {
			continue
		}

		e := badParameter("policy %s has no parameter %q", policy, key)
		if len(s.params) == 0 {
			return e.WithRemedy("it has no parameters")
		}

		names := make([]string, len(s.params))
		for i, p := range s.params {
			names[i] = p.Name
		}

		return e.WithRemedy("use one of %s", strings.Join(names, ", "))
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

// Number returns a parameter that is a number between lowest and highest.
func (s *Settings) Number(name string, standard, lowest, highest float64, help string) float64 {
	text, ok := s.take(name, strconv.FormatFloat(standard, 'g', -1, 64), help)
	if !ok {
		return standard
	}

	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= lowest && f <= highest) {
		s.reject(
			name,
			text,
			"a number between "+strconv.FormatFloat(lowest, 'g', -1, 64)+" and "+strconv.FormatFloat(highest, 'g', -1, 64),
		)
	}

	return f
}

// Count returns a parameter that is an integer between lowest and highest.
func (s *Settings) Count(name string, standard, lowest, highest int, help string) int {
	text, ok := s.take(name, strconv.Itoa(standard), help)
	if !ok {
		return standard
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > highest {
		s.reject(name, text, "an integer between "+strconv.Itoa(lowest)+" and "+strconv.Itoa(highest))
	}

	return n
}

// Time returns a parameter that is a duration.
func (s *Settings) Time(name string, standard time.Duration, help string) time.Duration {
	text, ok := s.take(name, job.Duration(standard).String(), help)
	if !ok {
		return standard
	}

	d, err := job.ParseDuration(text)
	if err != nil || d < 0 {
		s.reject(name, text, "a duration, e.g. 90s or 2m")
	}

	return time.Duration(d)
}

// Choice returns a parameter that is one of some words; the first is the default.
func (s *Settings) Choice(name, help string, words ...string) string {
	text, ok := s.take(name, words[0], help)
	if !ok {
		return words[0]
	}

	if !slices.Contains(words, text) {
		s.reject(name, text, "one of "+strings.Join(words, ", "))
	}

	return text
}
