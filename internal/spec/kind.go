package spec

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/cron"
	"trainyard/internal/fleet"
	"trainyard/internal/glob"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
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

// unitKind reads a quantity with parse and checks it. Form says how one is written, for "must
// be …"; check returns what a quantity must be that this one is not, "" if it is all right.
func unitKind[T unit](
	words, form, pattern string,
	at func(*job.Spec) *T,
	parse func(string) (T, error),
	check func(T) string,
) kind {
	return kind{
		words:  words,
		schema: func() schema { return schema{"type": []string{"string", "number"}, "pattern": pattern} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			quantity, err := parse(s)
			if err != nil {
				v.bad("must be "+words+" such as "+form+got(s), v.example())
				return
			}

			if constraint := check(quantity); constraint != "" {
				v.bad("must be "+constraint+got(s), v.example())
				return
			}

			*at(&v.d.entry.Spec) = quantity
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			var zero T
			if quantity := *at(s); quantity != zero {
				return word(quantity.String()), nil
			}

			return nil, nil
		},
	}
}

// between checks that a quantity lies in an interval.
func between[T interface {
	cmp.Ordered
	fmt.Stringer
}](lo, hi T) func(T) string {
	return func(quantity T) string {
		if quantity < lo || quantity > hi {
			return "between " + lo.String() + " and " + hi.String()
		}

		return ""
	}
}

func durationKind(at func(*job.Spec) *job.Duration, lo, hi time.Duration) kind {
	parse := func(s string) (job.Duration, error) {
		d, err := job.ParseDuration(s)
		return d - d%job.Duration(time.Millisecond), err // what String can write
	}

	return unitKind(
		"a duration",
		"90s, 10m, 6h or 2d",
		`^([0-9.]+ *(ms|s|m|h|d|w) *)+$`,
		at,
		parse,
		between(job.Duration(lo), job.Duration(hi)),
	)
}

func memoryKind() kind {
	return unitKind("an amount of memory", "24GB or 512MB", `^[0-9.]+ *([kKmMgGtT][iI]?)?[bB]?$`,
		func(s *job.Spec) *job.Bytes { return &s.Resources.Memory }, job.ParseBytes, between(minMemory, maxMemory))
}

func cpusKind() kind {
	return unitKind("a number of CPUs", "8 or 0.5", `^[0-9.]+$`,
		func(s *job.Spec) *job.CPUs { return &s.Resources.CPUs }, job.ParseCPUs, between(minCPUs, maxCPUs))
}

func moneyKind(at func(*job.Spec) *job.Money, least job.Money) kind {
	return unitKind(
		"an amount of money",
		"$40 or $1.25",
		`^\$?[0-9.]+$`,
		at,
		job.ParseMoney,
		between(least, job.Money(1e15)),
	)
}

// errZeroRange is for a range that starts from 0.
var errZeroRange = errors.New("the range starts from 0")

// countKind reads a count or a range of counts. A range starts from 1 at
// least, because a run with none of them would not be what was asked for.
func countKind(at func(*job.Spec) *job.Range, lo, hi int) kind {
	parse := func(s string) (job.Range, error) {
		r, err := job.ParseRange(s)
		if err == nil && r.Min == 0 && strings.ContainsAny(s, ".+") {
			err = errZeroRange
		}

		return r, err
	}

	return unitKind(
		"a count or a range of counts",
		"4, 1..8 or 2.. (a range starts from 1 or more and goes up)",
		`^([0-9]+|[0-9]*\.\.[0-9]+|[0-9]+(\.\.|\+))$`,
		at,
		parse,
		counts(lo, hi),
	)
}

// counts checks that a range of counts lies in an interval.
func counts(lo, hi int) func(job.Range) string {
	return func(r job.Range) string {
		if r.Min < lo || r.Min > hi || r.Max > hi {
			return fmt.Sprintf("a count between %d and %d, or a range within it", lo, hi)
		}

		return ""
	}
}

// wholeKind reads an integer.
func wholeKind(at func(*job.Spec) *int, lo, hi int) kind {
	return kind{
		words:  "an integer",
		schema: func() schema { return schema{"type": "integer", "minimum": lo, "maximum": hi} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			n, err := strconv.Atoi(s)
			if err != nil || n < lo || n > hi {
				v.bad(fmt.Sprintf("must be an integer between %d and %d", lo, hi)+got(s), v.example())
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

			remedy := v.example()
			if closest := v.r.Finder.Closest(s, words); closest != "" {
				remedy = "did you mean " + closest + "?"
			}

			v.bad("must be one of "+strings.Join(words, ", ")+got(s), remedy)
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textNode(string(*at(s))) },
	}
}

// stringKind reads a string in one piece; check returns what it must be and is not, and what to do.
func stringKind(words string, at func(*job.Spec) *string, check func(string) (string, string)) kind {
	return kind{
		words:  words,
		schema: func() schema { return schema{"type": []string{"string", "number", "boolean"}} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			if constraint, remedy := check(s); constraint != "" {
				v.bad(constraint+got(s), remedy)
				return
			}

			*at(&v.d.entry.Spec) = s
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textNode(*at(s)) },
	}
}

func lineKind(at func(*job.Spec) *string) kind {
	return stringKind("a string", at, func(s string) (string, string) {
		if strings.TrimSpace(s) == "" {
			return "must not be blank", "write something, or remove the line"
		}

		return "", ""
	})
}

// imageKind reads the name of a container image.
func imageKind() kind {
	return stringKind("an image", func(s *job.Spec) *string { return &s.Image }, func(s string) (string, string) {
		if job.ImageName(s) {
			return "", ""
		}

		return fmt.Sprintf("must be the name of a container image, up to %d characters, with lower-case letters before its "+
			"tag", job.MaxImage), "write it as in pytorch/pytorch:2.6.0 or ghcr.io/org/name@sha256:…"
	})
}

// registryAuthKind reads the name of a secret that the program does not get.
func registryAuthKind() kind {
	at := func(s *job.Spec) *string { return &s.RegistryAuth }
	k := stringKind("the name of a secret", at, func(s string) (string, string) {
		if constraint, _ := badVariable(s); constraint == "" {
			return "", ""
		}

		return "must be the name of a stored secret",
			"store USER:PASSWORD with trainyard secrets set REGISTRY_LOGIN and write registry_auth: REGISTRY_LOGIN"
	})
	k.schema = variableSchema

	return k
}

func nameKind(at func(*job.Spec) *string) kind {
	k := stringKind("a name", at, badName)
	k.schema = nameSchema
	return k
}

// badName says what a name must be, if this one is not, and suggests one that would do.
func badName(s string) (string, string) {
	if id.Name(s) {
		return "", ""
	}

	constraint := fmt.Sprintf(
		"must be up to %d lower-case letters, digits, '-', '_' and '.', with a letter or digit at both ends",
		id.MaxName,
	)

	if fixed := fixName(s); fixed != "" {
		return constraint, "write it as in " + fixed
	}

	return constraint, "write it as in resnet50-cifar"
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
			return "must be a path relative to the job file", "write it as in . or ../code"
		}

		return "", ""
	})
}

// insideKind reads the path of a folder inside the working directory.
func insideKind(at func(*job.Spec) *string) kind {
	return stringKind("a path", at, func(s string) (string, string) {
		clean := path.Clean(s)
		if path.IsAbs(s) || strings.HasPrefix(s, "~") || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
			return "must be a directory inside the working directory", "write it as in ckpt or out/ckpt"
		}

		return "", ""
	})
}

// namesKind reads a list of names, each of which may be there once.
func namesKind(words string, at func(*job.Spec) *[]string) kind {
	return listKind(words, at, badName, nameSchema)
}

// needsKind reads names of jobs of the file, and handles of others.
func needsKind() kind {
	return listKind(
		"the name of a job or a list of names",
		func(s *job.Spec) *[]string { return &s.Needs },
		func(s string) (string, string) {
			if h, ok := id.ParseHandle(s); ok && (h.Name != "" || h.Job != "") {
				return "", ""
			}

			return badName(strings.TrimSuffix(s, "@last"))
		},
		needSchema,
	)
}

// everyKind reads how often something recurs.
func everyKind() kind {
	return stringKind("an interval or the five fields of a crontab", func(s *job.Spec) *string { return &s.Every },
		func(text string) (string, string) {
			const example = `write it as in every: 6h or every: "0 3 * * *"`

			if d, err := job.ParseDuration(text); err == nil {
				if d := time.Duration(d); d < cron.MinInterval || d > maxTime {
					return "must be between " + job.Duration(cron.MinInterval).String() + " and " +
						job.Duration(maxTime).String(), example
				}

				return "", ""
			}

			if _, err := cron.Parse(text); err != nil {
				return "must be an interval or the five fields of a crontab: " + err.Error(), example
			}

			return "", ""
		})
}

// nodesKind reads names of nodes. A number is refused: it is meant for resources.nodes.
func nodesKind(at func(*job.Spec) *[]string) kind {
	return listKind("a node or a list of nodes", at, func(s string) (string, string) {
		if _, err := strconv.Atoi(s); err == nil {
			return "must be names of nodes", "for a number of nodes write resources: {nodes: " + s + "}"
		}

		return badName(s)
	}, nameSchema)
}

// labelsKind reads labels of nodes.
func labelsKind() kind {
	return listKind("a label or a list of labels", func(s *job.Spec) *[]string { return &s.Labels },
		func(text string) (string, string) {
			if fleet.CheckLabel(text) == nil {
				return "", ""
			}

			return "must be a name or name=value",
				"use lower-case letters, digits, '-', '_' and '.', as in labels: [ssd, zone=a]"
		},
		func() schema { return schema{"type": "string", "minLength": 1, "maxLength": 127} },
	)
}

func secretsKind() kind {
	return listKind(
		"a name or a list of names",
		func(s *job.Spec) *[]string { return &s.Secrets },
		func(entry string) (string, string) {
			name, _ := job.SecretName(entry)
			return badVariable(name)
		},
		secretSchema,
	)
}

// outputsKind reads the patterns of files that are kept.
func outputsKind() kind {
	return listKind(
		"a path or a list of paths",
		func(s *job.Spec) *[]string { return &s.Outputs },
		glob.Check,
		func() schema { return schema{"type": "string", "minLength": 1, "maxLength": 1000} },
	)
}

func listKind(
	words string,
	at func(*job.Spec) *[]string,
	check func(string) (string, string),
	item func() schema,
) kind {
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

				if constraint, remedy := check(s); constraint != "" {
					i.bad(constraint+got(s), remedy)
					continue
				}

				if seen[s] {
					i.bad("must be listed once, got "+yamlfile.Quote(s)+" twice", "remove one of them")
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
