package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/fault"
)

// initFile writes a job file to begin with.
func (a *app) initFile() *cobra.Command {
	const standard = "job.yaml"

	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a job file for the program in this folder",
		Long: `Write a commented job file, job.yaml or FILE, for the program in its folder. It looks for a script that
trains, for files that list packages, and for what the script says of GPUs, frameworks and checkpoints. Look through
it: what is only a guess says so. No server is needed, and a file that exists is never overwritten.`,
		Example: "  trainyard init\n  trainyard init experiments/resnet/job.yaml",
		Args:    exit.Args(0, 1, "job file"),
		RunE: func(_ *cobra.Command, args []string) error {
			file := standard
			if len(args) == 1 {
				file = args[0]
			}

			return a.writeStarter(file)
		},
	}
}

func (a *app) writeStarter(file string) error {
	folder, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("find the folder of %s: %w", file, err)
	}

	starter, err := jobfile.NewStarter(os.DirFS(folder), filepath.Base(folder))
	if err != nil {
		return err
	}

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
