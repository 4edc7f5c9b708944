package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
)

// readFolder reads curves in the form that docs/explanation/benchmarks-forecast.md describes. It
// returns also what was left out and why.
func readFolder(dir string) (list []sample, left []string, err error) {
	f := folder{byName: map[string]*sample{}}
	if err := f.index(dir); err != nil {
		return nil, nil, err
	}

	files, err := filepath.Glob(filepath.Join(dir, "*.csv*"))
	if err != nil {
		return nil, nil, err
	}

	for _, file := range files {
		base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".gz"), ".csv")
		if base == "index" || !strings.HasSuffix(file, ".csv") && !strings.HasSuffix(file, ".csv.gz") {
			continue
		}
		if err := f.points(file, base); err != nil {
			return nil, nil, err
		}
	}

	if len(f.names) == 0 {
		return nil, nil, fmt.Errorf("there are no curves in %s", dir)
	}

	for _, name := range f.names {
		s := f.byName[name]
		if why := s.settle(); why != "" {
			left = append(left, fmt.Sprintf("%s is left out: %s", name, why))
			continue
		}

		list = append(list, *s)
	}

	return list, left, nil
}

// folder gathers curves by name.
type folder struct {
	names  []string
	byName map[string]*sample
}

// of returns the sample of a name.
func (f *folder) of(name string) *sample {
	if s := f.byName[name]; s != nil {
		return s
	}

	s := &sample{source: "curves", name: name}
	s.Job = id.Job(name)
	s.Features = history.Features{Name: "curves", Task: "curves", Model: "curves", Metric: "value"}
	f.byName[name] = s
	f.names = append(f.names, name)

	return s
}

// key returns a name as it may stand in the key of a figure.
func key(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}

		return '_'
	}, strings.ToLower(name))
}

// index reads what is known of curves. It may be missing.
func (f *folder) index(dir string) error {
	path := filepath.Join(dir, "index.csv")
	err := table(
		path,
		[]string{"curve", "group?", "target?", "direction?", "kind?", "system?", "source?"},
		func(cells []string) error {
			s := f.of(cells[0])
			s.Group, s.excludedSystem = cells[1], cells[5]
			if kind := cells[4]; kind != "" {
				s.Features = history.Features{Name: kind, Task: kind, Model: kind, Metric: "value"}
				s.source = key(kind)
			}

			if cells[6] != "" {
				s.source = key(cells[6])
			}

			switch cells[3] {
			case "":
			case "falling":
				s.directionKnown = true
			case "rising":
				s.directionKnown, s.Curve.Goal.Rising = true, true
			default:
				return fmt.Errorf("direction is %q; it is falling or rising", cells[3])
			}

			if cells[2] != "" {
				v, err := number(cells[2])
				if err != nil {
					return err
				}

				s.Curve.Goal.Value, s.Curve.Goal.Set = v, true
			}

			return nil
		},
	)

	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}

// points reads one file: of one curve, which is called like the file, or of several.
func (f *folder) points(path, base string) error {
	return table(path, []string{"curve?", "group?", "step?", "value", "t_s?"}, func(cells []string) error {
		name, at := cells[0], cells[2]
		if name == "" {
			name = base
		}

		if at == "" {
			at = cells[4]
		}

		if at == "" {
			return errors.New("the point has neither a step nor a t_s")
		}

		x, err := number(at)
		if err != nil {
			return err
		}

		y, err := number(cells[3])
		if err != nil {
			return err
		}

		s := f.of(name)
		if cells[1] != "" {
			s.Group = cells[1]
		}

		s.add(x, y)

		return nil
	})
}

// settle completes a curve: without a target it ends where it first gets to its own last value, and without a
// direction it goes from its first value to its target. It says why a curve is of no use.
func (s *sample) settle() string {
	n := len(s.Curve.Y)
	if n < 4 {
		return "it has fewer than four points"
	}

	if !s.Curve.Goal.Set {
		s.Curve.Goal.Value, s.Curve.Goal.Set = s.Curve.Y[n-1], true
	}

	if !s.directionKnown {
		s.Curve.Goal.Rising = s.Curve.Goal.Value > s.Curve.Y[0]
	}

	if s.Group == "" {
		s.Group = s.name
	}

	if !s.finish() {
		return "it does not reach its target"
	}

	return ""
}
