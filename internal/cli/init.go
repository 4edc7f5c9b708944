package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/spec"
)

// initFile writes a job file to begin with.
func (a *app) initFile() *cobra.Command {
	const standard = "job.yaml"
	var template string

	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a job file for the program in this folder",
		Long: `Write a commented job file, job.yaml or FILE, for the program in its folder. It looks for a script that
trains, for files that list packages, and for what the script says of GPUs, frameworks and checkpoints. Look through
it: what is only a guess says so. With --template it writes one of the templates instead, which the portal has too. No
server is needed, and a file that exists is never overwritten.`,
		Example: "  trainyard init\n  trainyard init experiments/resnet/job.yaml\n  trainyard init --template torchrun",
		Args:    exit.Args(0, 1, "job file"),
		RunE: func(_ *cobra.Command, args []string) error {
			file := standard
			if len(args) == 1 {
				file = args[0]
			}

			starter, err := starterFor(file, template)
			if err != nil {
				return err
			}

			return a.writeStarter(file, starter)
		},
	}

	cmd.Flags().StringVar(&template, "template", "", "`template` to start from: "+templateNames())
	CompleteFlag(cmd, "template", completeTemplates)

	return cmd
}

// templateNames lists the templates for the help.
func templateNames() string {
	var names []string

	for _, t := range templates() {
		names = append(names, t.Name)
	}

	return humanize.Or(names...)
}

// templates returns the templates of this binary.
func templates() []spec.Template {
	all, err := spec.Templates()
	if err != nil { // they are part of the binary
		panic(err)
	}

	return all
}

func completeTemplates(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var words []string

	for _, t := range templates() {
		words = append(words, t.Name+"\t"+t.Title)
	}

	return words, cobra.ShellCompDirectiveNoFileComp
}

// starterFor makes a job file: a template, or one for the program in the folder of the file.
func starterFor(file, template string) (jobfile.Starter, error) {
	if template == "" {
		folder, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return jobfile.Starter{}, fmt.Errorf("find the folder of %s: %w", file, err)
		}

		return jobfile.NewStarter(os.DirFS(folder), filepath.Base(folder))
	}

	for _, t := range templates() {
		if t.Name == template {
			return jobfile.Starter{Text: t.Text, Summary: strings.ToLower(t.Title[:1]) + t.Title[1:]}, nil
		}
	}

	return jobfile.Starter{}, fault.New(fault.NotFound, "unknown_template", "template %s not found", template).
		WithRemedy("choose %s", templateNames())
}

func (a *app) writeStarter(file string, starter jobfile.Starter) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as other sources
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Conflict, "file_exists", "%s already exists", file).
			WithRemedy("name another file: trainyard init other.yaml")
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	_, err = f.WriteString(starter.Text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	if _, err := fmt.Fprintf(a.Stdout, "Wrote %s: %s.\n", file, starter.Summary); err != nil {
		return err
	}

	a.Next(
		fmt.Sprintf("trainyard validate %s             check it", file),
		fmt.Sprintf("trainyard submit %s --dry-run     see where and when it would run", file),
		fmt.Sprintf("trainyard submit %s               submit it and follow it", file),
	)

	return nil
}
