package solver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"trainyard/internal/place/lp"
)

// read reads the file in which a program left its answer.
func (p Program) read(r io.Reader, vars int) (*lp.Solution, error) {
	s := &lp.Solution{Values: make([]float64, vars)}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	var err error

	switch p.Name {
	case "cbc":
		err = readCBC(sc, s)
	case "glpsol":
		err = readGLPK(sc, s)
	default:
		err = readHiGHS(sc, s)
	}

	return s, errors.Join(err, sc.Err())
}

var errNone = errors.New("no solution found within the time limit")

// readCBC reads a first line that says how it went, and then a line for each
// variable that is not 0: number, name, value, reduced cost.
func readCBC(sc *bufio.Scanner, s *lp.Solution) error {
	if !sc.Scan() {
		return errNone
	}

	status := sc.Text()
	switch {
	case strings.HasPrefix(status, "Optimal"):
		s.Proven = true
	case strings.HasPrefix(status, "Infeasible"), strings.HasPrefix(status, "Integer infeasible"):
		return errInfeasible
	case strings.Contains(status, "no integer solution"):
		return errNone
	case !strings.HasPrefix(status, "Stopped"):
		return fmt.Errorf("unexpected status %q", status)
	}

	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) > 0 && fields[0] == "**" { // marks what is out of bounds; the check will tell
			fields = fields[1:]
		}

		if len(fields) < 3 {
			return fmt.Errorf("cannot read the solution line %q", sc.Text())
		}
		if err := put(s, fields[1], fields[2]); err != nil {
			return err
		}
	}

	return nil
}

var errInfeasible = errors.New("the conditions contradict each other: no solution exists")

// readGLPK reads a line "s mip rows columns status cost", and a line "j number
// value" for each variable, counted from 1.
func readGLPK(sc *bufio.Scanner, s *lp.Solution) error {
	known := false
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		switch {
		case len(fields) >= 5 && fields[0] == "s":
			known = true

			if len(fields) == 6 && fields[1] == "bas" { // nothing had to be whole
				fields[4] = fields[5][:1]
			}

			switch fields[4] {
			case "o":
				s.Proven = true
			case "n", "i":
				return errInfeasible
			case "f":
			default:
				return errNone
			}
		case len(fields) >= 3 && fields[0] == "j":
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				return fmt.Errorf("cannot read the solution line %q: %w", sc.Text(), err)
			}
			if err := put(s, "x"+strconv.Itoa(n-1), fields[2]); err != nil {
				return err
			}
		}
	}

	if !known {
		return errNone
	}

	return nil
}

// readHiGHS reads a line after "Model status", and a line "name value" for each
// variable after "# Columns".
func readHiGHS(sc *bufio.Scanner, s *lp.Solution) error {
	status, columns, any := "", false, false
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		switch {
		case line == "Model status":
			if sc.Scan() {
				status = strings.TrimSpace(sc.Text())
			}
		case strings.HasPrefix(line, "# Columns"):
			columns, any = true, true
		case strings.HasPrefix(line, "#"):
			if columns {
				return verdict(status, any, s) // what follows are rows and shadow prices
			}
		case columns:
			fields := strings.Fields(line)
			if len(fields) < 2 {
				return fmt.Errorf("cannot read the solution line %q", line)
			}
			if err := put(s, fields[0], fields[1]); err != nil {
				return err
			}
		}
	}

	return verdict(status, any, s)
}

func verdict(status string, any bool, s *lp.Solution) error {
	switch {
	case status == "Infeasible":
		return errInfeasible
	case !any:
		return errNone
	}

	s.Proven = status == "Optimal"

	return nil
}

// put sets the value of a variable by its name.
func put(s *lp.Solution, name, value string) error {
	i, err := strconv.Atoi(strings.TrimPrefix(name, "x"))
	if err != nil || i < 0 || i >= len(s.Values) {
		return fmt.Errorf("unknown variable %q in the solution", name)
	}

	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("the value of %s: %w", name, err)
	}

	s.Values[i] = v

	return nil
}
