// Package solver solves linear programmes with a program that is installed on the
// machine: HiGHS, CBC or GLPK, whichever is found.
//
// It is a port: place/harvest states a programme and is handed a function that
// solves it; the wiring makes that function with this package, and benchmarks
// compare with it. A solver is a luxury, since the exact allocator and the search
// of place/harvest do without; it is needed only for conditions across jobs that
// are to be met at the proven best. What a program answers is checked against the
// model before anyone sees it. The package decides nothing.
package solver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/place/lp"
)

// Program is a solver that was found.
type Program struct {
	Name string // highs, cbc or glpsol
	Path string
}

// Names lists the programs that can be used, the one to prefer in front.
func Names() []string { return []string{"highs", "cbc", "glpsol"} }

// Gap is how far a proven answer may be from the best, as a share of it.
const Gap = 1e-6

// All returns every solver that is installed, the one to prefer in front.
func All() []Program {
	var found []Program
	for _, name := range Names() {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, Program{name, path})
		}
	}

	return found
}

// Find returns a solver by its name, or the first that is installed if name is "".
func Find(name string) (Program, error) {
	for _, p := range All() {
		if name == "" || p.Name == name {
			return p, nil
		}
	}

	programs := name
	if name == "" {
		programs = humanize.Or(Names()...)
	}

	return Program{}, fault.New(fault.Unavailable, "no_solver", "no solver is installed: %s not found in PATH", programs).
		WithRemedy("install one, e.g. apt-get install coinor-cbc")
}

// Solve lets the program solve a model, for at most so long. An answer that is not
// proven to be the best says so; none at all is an error.
func (p Program) Solve(ctx context.Context, m *lp.Model, limit time.Duration) (*lp.Solution, error) {
	dir, err := os.MkdirTemp("", "trainyard-solver-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the solver: %w", err)
	}

	s, err := p.solveIn(ctx, dir, m, limit)

	return s, errors.Join(err, os.RemoveAll(dir))
}

func (p Program) solveIn(ctx context.Context, dir string, m *lp.Model, limit time.Duration) (*lp.Solution, error) {
	if len(m.Vars) == 0 {
		return &lp.Solution{Proven: true}, nil
	}

	in, out := filepath.Join(dir, "model.lp"), filepath.Join(dir, "answer")
	var text bytes.Buffer
	writeLP(&text, m)
	if err := os.WriteFile(in, text.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("write the model: %w", err)
	}

	args, err := p.arguments(dir, in, out, limit)
	if err != nil {
		return nil, err
	}

	// The programs look at the clock now and then; one that does not stop by itself is stopped.
	ctx, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()

	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}

		return nil, fmt.Errorf("%s failed: %w: %s", p.Name, err, tail(output))
	}

	answer, err := os.Open(out)
	if err != nil {
		return nil, fmt.Errorf("%s wrote no solution: %w: %s", p.Name, err, tail(output))
	}

	s, err := p.read(answer, len(m.Vars))
	if err = errors.Join(err, answer.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := m.Check(s.Values); err != nil {
		return nil, fmt.Errorf("the solution of %s violates the model: %w", p.Name, err)
	}

	return s, nil
}

// grace is how much longer than its limit a program may take before it is stopped.
const grace = 5 * time.Second

// arguments returns the command line: read in, write out, within the limit.
func (p Program) arguments(dir, in, out string, limit time.Duration) ([]string, error) {
	seconds := strconv.Itoa(max(1, int(limit.Seconds())))
	gap := strconv.FormatFloat(Gap, 'g', -1, 64)

	switch p.Name {
	case "cbc":
		return []string{in, "-seconds", seconds, "-ratioGap", gap, "-solve", "-solution", out}, nil
	case "glpsol":
		return []string{"--lp", in, "--tmlim", seconds, "--mipgap", gap, "--cuts", "-w", out}, nil
	case "highs":
		options := filepath.Join(dir, "options")
		if err := os.WriteFile(options, []byte("mip_rel_gap = "+gap+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the solver's options: %w", err)
		}

		return []string{"--model_file", in, "--solution_file", out, "--options_file", options, "--time_limit", seconds}, nil
	}

	return nil, fmt.Errorf("unknown solver %q", p.Name)
}

// tail returns the end of what a program printed, for a message.
func tail(output []byte) string {
	const most = 300
	text := strings.TrimSpace(string(output))
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}

	return text
}
