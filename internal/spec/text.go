package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
)

// commandKind reads shell commands: a text, or a list of texts that are the lines of one.
func commandKind(at func(*job.Spec) *string) kind {
	return kind{
		words:  "shell commands, as a string or a list of strings",
		schema: func() schema { return oneOrMany(schema{"type": []string{"string", "boolean"}}) },
		read: func(v value) {
			var lines []string
			for _, i := range v.items() {
				if i.n.Kind == yaml.MappingNode {
					i.fail("wrong_type", "must be a string, got a mapping", "put a command that contains ': ' in quotes")
					return
				}

				s, ok := i.text()
				if !ok {
					return
				}

				lines = append(lines, s)
			}

			s := strings.Join(lines, "\n")
			switch {
			case v.n.Kind == yaml.MappingNode: // reported by items
			case strings.TrimSpace(s) == "":
				v.bad("must not be empty", v.example())
			case len(s) > maxCommand:
				v.fail("too_large", fmt.Sprintf("must have at most %d bytes, got %d", maxCommand, len(s)),
					"put the commands into a file of the working directory and call that")
			default:
				*at(&v.d.entry.Spec) = s
			}
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textNode(*at(s)) },
	}
}

// deadlineLayouts are the ways to write a time without a zone.
func deadlineLayouts() []string {
	return []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"}
}

func deadlineKind() kind {
	return kind{
		words: "a time",
		schema: func() schema {
			return schema{
				"type":    "string",
				"pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})?$`,
			}
		},
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			at, ok := parseTime(s, v.r.opts.Location)
			switch now := v.r.opts.Now; {
			case !ok:
				v.bad("must be a time such as 2026-12-01T09:00 or 2026-12-01T09:00:00Z"+got(s), v.example())
			case !now.IsZero() && !at.After(now):
				v.bad("must be in the future"+got(s), "write a later time, or remove the line")
			default:
				v.d.entry.Spec.Deadline = &at
			}
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			if s.Deadline == nil {
				return nil, nil
			}

			return word(s.Deadline.UTC().Format(time.RFC3339Nano)), nil
		},
	}
}

// parseTime reads a time and returns it in UTC.
func parseTime(s string, where *time.Location) (time.Time, bool) {
	if where == nil {
		where = time.UTC
	}

	at, err := time.Parse(time.RFC3339, s)
	for _, layout := range deadlineLayouts() {
		if err == nil {
			break
		}

		at, err = time.ParseInLocation(layout, s, where)
	}

	at = at.UTC()

	return at, err == nil && at.Year() >= 2000 && at.Year() < 3000
}

// amounts are the letters that make a number shorter, the greatest first.
func amounts() []amount {
	return []amount{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}, {"", 1}}
}

type amount struct {
	letter string
	size   float64
}

// amountKind reads a number that may be shortened by a letter: 25.6M, 7B.
func amountKind(what string, least float64, at func(*job.Spec) *float64) kind {
	article := "a "
	if strings.HasPrefix(what, "a") {
		article = "an "
	}

	return kind{
		words: article + what,
		schema: func() schema {
			return schema{"type": []string{"string", "number"}, "pattern": `^[0-9.]+ *[kKmMbBtT]?$`}
		},
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			for _, a := range amounts() {
				number, ok := strings.CutSuffix(strings.ToUpper(s), a.letter)
				if f, isNumber := parseNumber(strings.TrimSpace(number)); ok && isNumber && f*a.size >= least &&
					f*a.size <= maxAmount {
					*at(&v.d.entry.Spec) = f * a.size
					return
				}
			}

			v.bad(fmt.Sprintf("must be %s%s between %g and %g", article, what, least, maxAmount)+got(s), v.example())
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			f := *at(s)
			if f == 0 {
				return nil, nil
			}

			for _, a := range amounts() {
				if q := f / a.size; q >= 1 && q*a.size == f {
					return word(strconv.FormatFloat(q, 'f', -1, 64) + a.letter), nil
				}
			}

			return numberNode(f)
		},
	}
}

// parseNumber reads a decimal number with or without an exponent: no hexadecimal, infinity or underscore.
func parseNumber(s string) (float64, bool) {
	if strings.Trim(s, "0123456789+-.eE") != "" {
		return 0, false
	}

	f, err := strconv.ParseFloat(s, 64)

	return f, err == nil
}

// numberKind reads any number.
func numberKind(at func(*job.Spec) **float64) kind {
	return kind{
		words:  "a number",
		schema: func() schema { return schema{"type": "number"} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			f, ok := parseNumber(s)
			if !ok {
				v.bad("must be a number"+got(s), v.example())
				return
			}

			*at(&v.d.entry.Spec) = &f
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			f := *at(s)
			if f == nil {
				return nil, nil
			}

			return numberNode(*f)
		},
	}
}

func shareKind(at func(*job.Spec) *float64, least, most float64) kind {
	return kind{
		words:  "a fraction of one GPU",
		schema: func() schema { return schema{"type": "number", "minimum": least, "maximum": most} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			f, ok := parseNumber(s)
			if !ok || f < least || f > most {
				v.bad(fmt.Sprintf("must be a fraction of one GPU between %v and %v", least, most)+got(s), v.example())
				return
			}

			*at(&v.d.entry.Spec) = f
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			if *at(s) == 0 {
				return nil, nil
			}

			return numberNode(*at(s))
		},
	}
}

// numberNode writes a number so that the same number is read from it.
func numberNode(f float64) (*yaml.Node, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v cannot be written in a job file", f)
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return word(strconv.FormatFloat(f, 'f', 0, 64)), nil
	}

	return word(strconv.FormatFloat(f, 'g', -1, 64)), nil
}
