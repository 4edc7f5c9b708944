package spec

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

const (
	minTime      = time.Second
	maxTime      = 365 * 24 * time.Hour
	maxGrace     = time.Hour
	maxStart     = 24 * time.Hour
	defaultGrace = 30 * time.Second
	minMemory    = job.Bytes(1 << 20)
	maxMemory    = job.Bytes(1 << 50)
	minCPUs      = job.CPUs(100)
	maxCPUs      = job.CPUs(4096 * 1000)
	maxAmount    = 1e18
)

// unit is a quantity of package job that is written as one word.
type unit interface {
	comparable
	fmt.Stringer
}

// unitKind reads a quantity with parse and checks it; check returns what is wrong and what to do.
func unitKind[T unit](words, pattern string, at func(*job.Spec) *T, parse func(string) (T, error), check func(T) (string, string)) kind {
	return kind{
		words:  words,
		schema: func() schema { return schema{"type": []string{"string", "number"}, "pattern": pattern} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}
			got, err := parse(s)
			if err != nil {
				v.bad(unitError(err))
				return
			}
			if problem, remedy := check(got); problem != "" {
				v.bad(quote(s)+" "+problem, remedy)
				return
			}
			*at(&v.d.entry.Spec) = got
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			var zero T
			if got := *at(s); got != zero {
				return word(got.String()), nil
			}
			return nil, nil
		},
	}
}

// between checks that a quantity lies in an interval.
func between[T interface {
	cmp.Ordered
	fmt.Stringer
}](lo, hi T) func(T) (string, string) {
	return func(got T) (string, string) {
		remedy := "write something from " + lo.String() + " to " + hi.String()
		switch {
		case got < lo:
			return "is too little", remedy
		case got > hi:
			return "is too much", remedy
		}
		return "", ""
	}
}

func durationKind(at func(*job.Spec) *job.Duration, lo, hi time.Duration) kind {
	parse := func(s string) (job.Duration, error) {
		d, err := job.ParseDuration(s)
		return d - d%job.Duration(time.Millisecond), err // what String can write
	}
	return unitKind("a length of time", `^([0-9.]+ *(ms|s|m|h|d|w) *)+$`, at, parse, between(job.Duration(lo), job.Duration(hi)))
}

func memoryKind() kind {
	return unitKind("an amount of memory", `^[0-9.]+ *([kKmMgGtT][iI]?)?[bB]?$`,
		func(s *job.Spec) *job.Bytes { return &s.Resources.Memory }, job.ParseBytes, between(minMemory, maxMemory))
}

func cpusKind() kind {
	return unitKind("a number of CPUs", `^[0-9.]+$`,
		func(s *job.Spec) *job.CPUs { return &s.Resources.CPUs }, job.ParseCPUs, between(minCPUs, maxCPUs))
}

func moneyKind(at func(*job.Spec) *job.Money, least job.Money) kind {
	return unitKind("an amount of money", `^\$?[0-9.]+$`, at, job.ParseMoney, between(least, job.Money(1e15)))
}

// countKind reads a count or a range of counts. A range starts from 1 at
// least, because a run with none of them would not be what was asked for.
func countKind(at func(*job.Spec) *job.Range, lo, hi int) kind {
	parse := func(s string) (job.Range, error) {
		r, err := job.ParseRange(s)
		if err == nil && r.Min == 0 && strings.ContainsAny(s, ".+") {
			err = &job.UnitError{
				Message: fmt.Sprintf("must be a range that starts from 1, got %q", s),
				Remedy:  "write a range that starts from 1 or more, e.g. 1..8",
			}
		}
		return r, err
	}
	return unitKind("a count or a range of counts", `^([0-9]+|[0-9]*\.\.[0-9]+|[0-9]+(\.\.|\+))$`, at, parse, counts(lo, hi))
}

// counts checks that a range of counts lies in an interval.
func counts(lo, hi int) func(job.Range) (string, string) {
	return func(r job.Range) (string, string) {
		if r.Min < lo || r.Min > hi || r.Max > hi {
			return "is out of range", fmt.Sprintf("write a count from %d to %d, or a range within it", lo, hi)
		}
		return "", ""
	}
}

// wholeKind reads a whole number.
func wholeKind(at func(*job.Spec) *int, lo, hi int) kind {
	return kind{
		words:  "a whole number",
		schema: func() schema { return schema{"type": "integer", "minimum": lo, "maximum": hi} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}
			n, err := strconv.Atoi(s)
			if err != nil || n < lo || n > hi {
				v.bad(fmt.Sprintf("%s is no whole number from %d to %d", quote(s), lo, hi), v.example())
				return
			}
			*at(&v.d.entry.Spec) = n
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return word(strconv.Itoa(*at(s))), nil },
	}
}

// choiceKind reads one of a few words.
func choiceKind[T ~string](at func(*job.Spec) *T, choices ...T) kind {
	var words []string
	for _, c := range choices {
		words = append(words, string(c))
	}
	return kind{
		words:  "one of " + strings.Join(words, ", "),
		schema: func() schema { return schema{"enum": words} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}
			for _, c := range choices {
				if s == string(c) {
					*at(&v.d.entry.Spec) = c
					return
				}
			}
			remedy := "write one of " + strings.Join(words, ", ")
			if near := nearest(s, words); near != "" {
				remedy = "did you mean " + near + "?"
			}
			v.bad(quote(s)+" is none of "+strings.Join(words, ", "), remedy)
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textNode(string(*at(s))) },
	}
}

// stringKind reads a text in one piece; check returns what is wrong and what to do.
func stringKind(words string, at func(*job.Spec) *string, check func(string) (string, string)) kind {
	return kind{
		words:  words,
		schema: func() schema { return schema{"type": []string{"string", "number", "boolean"}} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}
			if problem, remedy := check(s); problem != "" {
				v.bad(quote(s)+" "+problem, remedy)
				return
			}
			*at(&v.d.entry.Spec) = s
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textNode(*at(s)) },
	}
}

func lineKind(at func(*job.Spec) *string) kind {
	return stringKind("a text", at, func(s string) (string, string) {
		if strings.TrimSpace(s) == "" {
			return "is blank", "write something, or take the line out"
		}
		return "", ""
	})
}

func nameKind(at func(*job.Spec) *string) kind {
	k := stringKind("a name", at, badName)
	k.schema = nameSchema
	return k
}

// badName says what is wrong with a name and suggests one that would do.
func badName(s string) (string, string) {
	if id.Name(s) {
		return "", ""
	}
	remedy := fmt.Sprintf("use up to %d lower-case letters, digits, '-', '_' and '.', with a letter or digit at both ends", id.MaxName)
	if fixed := fixName(s); fixed != "" {
		remedy += ", as in " + fixed
	}
	return "is no name", remedy
}

// fixName makes a name of a text, or "" if nothing is left of it.
func fixName(s string) string {
	fixed := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			return c
		}
		return '-'
	}, strings.ToLower(s))
	fixed = strings.TrimLeft(fixed, "-_.")
	if len(fixed) > id.MaxName {
		fixed = fixed[:id.MaxName]
	}
	return strings.TrimRight(fixed, "-_.")
}

func pathKind(at func(*job.Spec) *string) kind {
	return stringKind("a path", at, func(s string) (string, string) {
		if path.IsAbs(s) || strings.HasPrefix(s, "~") || strings.Contains(s, "://") {
			return "is no path seen from the job file", "write it as in . or ../code"
		}
		return "", ""
	})
}

// insideKind reads the path of a folder inside the working directory.
func insideKind(at func(*job.Spec) *string) kind {
	return stringKind("a path", at, func(s string) (string, string) {
		clean := path.Clean(s)
		if path.IsAbs(s) || strings.HasPrefix(s, "~") || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
			return "is no folder inside the working directory", "write it as in ckpt or out/ckpt"
		}
		return "", ""
	})
}

// namesKind reads a list of names, each of which may be there once.
func namesKind(words string, at func(*job.Spec) *[]string) kind {
	return listKind(words, at, badName, nameSchema)
}

func secretsKind() kind {
	return listKind("a name or a list of names", func(s *job.Spec) *[]string { return &s.Secrets }, badVariable, variableSchema)
}

func listKind(words string, at func(*job.Spec) *[]string, check func(string) (string, string), item func() schema) kind {
	return kind{
		words:  words,
		schema: func() schema { return oneOrMany(item()) },
		read: func(v value) {
			seen := map[string]bool{}
			for _, i := range v.items() {
				s, ok := i.line()
				if !ok {
					continue
				}
				if problem, remedy := check(s); problem != "" {
					i.bad(quote(s)+" "+problem, remedy)
					continue
				}
				if seen[s] {
					i.bad(quote(s)+" is in the list twice", "take one of them out")
					continue
				}
				seen[s] = true
				list := at(&v.d.entry.Spec)
				*list = append(*list, s)
			}
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textsNode(*at(s)) },
	}
}
