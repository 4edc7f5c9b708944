package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
)

// checkedFile is what validate found out about a file.
type checkedFile struct {
	File   string          `json:"file"`
	Valid  bool            `json:"valid"`
	Jobs   []checkedJob    `json:"jobs,omitempty"`
	Errors []exit.Document `json:"errors,omitempty"`
}

type checkedJob struct {
	Name     string   `json:"name,omitempty"`
	Line     int      `json:"line"`
	Required []string `json:"required_env,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	NotesAt  []int    `json:"note_lines,omitempty"` // the line of each note
}

func (a *app) validate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check job files without a server",
		Long: `Check job files and report all errors with line and column. No server is needed.
Variables that a file takes from your environment are listed, not checked.`,
		Example: `  trainyard validate job.yaml
  trainyard validate jobs/*.yaml -o json`,
		Args: exit.Args(1, 0, "job file"),
		RunE: func(_ *cobra.Command, args []string) error { return a.doValidate(args) },
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) doValidate(paths []string) error {
	result := struct {
		Files []checkedFile `json:"files"`
	}{}
	code := exit.OK
	for _, path := range paths {
		checked, err := a.checkOne(path)
		if err != nil {
			code = max(code, exit.Code(err))
			checked.Errors = exit.DocumentOf(err, 0).Errors
			if checked.Errors == nil {
				checked.Errors = []exit.Document{exit.DocumentOf(err, 0)}
			}
		}

		result.Files = append(result.Files, checked)
	}

	if err := a.Show(result, nil, func() error { return a.showChecked(result.Files) }); err != nil {
		return err
	}

	return exit.With(code)
}

func (a *app) checkOne(path string) (checkedFile, error) {
	checked := checkedFile{File: path}
	text, err := jobfile.Read(path, a.In)
	if err != nil {
		return checked, err
	}

	file, err := jobfile.Check(text, a.Clock.Now())
	if err != nil {
		return checked, err
	}

	checked.Valid = true
	for _, e := range file.Jobs {
		j := checkedJob{Name: e.Spec.Name, Line: e.Line, Required: e.Required}
		for _, n := range e.Notes {
			j.Notes, j.NotesAt = append(j.Notes, n.Text), append(j.NotesAt, n.Line)
		}

		checked.Jobs = append(checked.Jobs, j)
	}

	return checked, nil
}

func (a *app) showChecked(files []checkedFile) error {
	var out strings.Builder
	for _, f := range files {
		if f.Valid {
			_, _ = fmt.Fprintf(&out, "%s: valid, %s\n", f.File, humanize.Count(len(f.Jobs), "job"))
		}

		for _, j := range f.Jobs {
			if len(j.Required) > 0 {
				_, _ = fmt.Fprintf(&out, "%s:%d: takes from your environment: %s\n", f.File, j.Line, strings.Join(j.Required, ", "))
			}

			for i, n := range j.Notes {
				_, _ = fmt.Fprintf(&out, "%s:%d: note: %s\n", f.File, j.NotesAt[i], table.Plain(n))
			}
		}

		for _, e := range f.Errors {
			_, _ = out.WriteString(place(f.File, e) + "\n")
		}
	}

	_, err := fmt.Fprint(a.Stdout, out.String())

	return err
}

// place writes a mistake as compilers do, so that editors can jump to it.
func place(file string, e exit.Document) string {
	text := file
	if e.Line > 0 {
		text += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}

	text += ": "
	if e.Field != "" {
		text += e.Field + ": "
	}

	text += e.Detail
	if e.Remedy != "" {
		text += " (" + e.Remedy + ")"
	}

	return table.Plain(text)
}
