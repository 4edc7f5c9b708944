package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

func (a *app) checkpoints() *cobra.Command {
	var removed bool
	cmd := &cobra.Command{
		Use: "checkpoints JOB", Aliases: []string{"ckpt"}, Short: "List, pin, remove or download checkpoints",
		Args: exit.Args(1, 1, "job"),
		Long: `List the checkpoints of a job, oldest first. The next run of the job, on whatever node, continues from the
one that is marked "next".

How many are kept is set in the job file (checkpoint.keep); a pinned one is kept until it is unpinned.`,
		Example: `  trainyard checkpoints j7
  trainyard checkpoints save j7
  trainyard checkpoints pin j7.c3
  trainyard checkpoints download j7.c3 --to ./model`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listCheckpoints(cmd.Context(), args[0], removed)
		},
	}

	cmd.Flags().BoolVar(&removed, "removed", false, "also list those that were removed")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.saveCheckpoint(), a.pinCheckpoint("pin", true), a.pinCheckpoint("unpin", false), a.removeCheckpoint(),
		a.downloadCheckpoint())

	return cmd
}

func (a *app) listCheckpoints(ctx context.Context, handle string, removed bool) error {
	return a.withClient(func(c *api.Client) error {
		j, err := c.FindJob(ctx, handle)
		if err != nil {
			return err
		}

		list, err := c.Checkpoints(ctx, j, removed)
		if err != nil {
			return err
		}

		names := func() []string {
			var names []string
			for i := range list.Checkpoints {
				names = append(names, string(list.Checkpoints[i].ID))
			}

			return names
		}

		return a.Show(list, names, func() error {
			t := a.NewTable("CHECKPOINT", "STEP", "METRIC", "SIZE", "AGE", "STATE", "RUN", "NODE", "NAME")
			for i := range list.Checkpoints {
				t.Cells(a.checkpointRow(&list.Checkpoints[i])...)
			}

			return a.WriteTable(t, fmt.Sprintf("%s has no checkpoints in the catalogue", j),
				"write checkpoints to $TRAINYARD_CHECKPOINT_DIR; see the field checkpoint of the job file")
		})
	})
}

func (a *app) checkpointRow(c *api.Checkpoint) []table.Cell {
	step, metric := "-", "-"
	if c.Step != nil {
		step = strconv.FormatInt(*c.Step, 10)
	}

	if c.Value != nil {
		metric = fmt.Sprintf("%s %g", c.Metric, *c.Value)
	}

	return []table.Cell{
		{Text: string(c.ID)}, {Text: step}, {Text: metric}, {Text: size(c.Size)},
		{Text: humanize.Ago(c.Written, a.Clock.Now())}, checkpointState(c),
		{Text: string(c.Run)}, {Text: few(c.Nodes)}, {Text: c.Name},
	}
}

// checkpointState says what can be done with a checkpoint.
func checkpointState(c *api.Checkpoint) table.Cell {
	cell := table.Cell{Text: string(c.State)}
	if c.State == checkpoint.Corrupt {
		cell.Color = table.Red
	}

	if c.Shared != "" && c.State == checkpoint.Stored {
		cell.Text += " on " + c.Shared
	}

	if c.Pinned {
		cell.Text += ", pinned"
	}

	if c.Next {
		cell.Text += ", next"
		cell.Color = table.Green
	}

	return cell
}

func (a *app) saveCheckpoint() *cobra.Command {
	cmd := &cobra.Command{
		Use: "save JOB", Short: "Ask a running job to save a checkpoint now", Args: exit.Args(1, 1, "job"),
		Long: `Ask the program of a running job to save a checkpoint now and to continue. Programs that use the Python
package do; others are not disturbed. The checkpoint appears in the list when it is stored.`,
		Example:           "  trainyard checkpoints save j7",
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				j, err := c.SaveJob(cmd.Context(), id.Job(args[0]))
				if err != nil {
					return err
				}

				return a.Show(j, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "%s was asked to save a checkpoint\n", j.ID)
					a.Note("  next: trainyard checkpoints %s", j.ID)

					return err
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) pinCheckpoint(verb string, on bool) *cobra.Command {
	short, words := "Keep a checkpoint until it is unpinned", "is kept until it is unpinned"
	if !on {
		short = "Let the job's rule decide how long a checkpoint is kept"
		words = "is kept as long as the rule of its job says"
	}

	cmd := &cobra.Command{
		Use: verb + " CHECKPOINT...", Short: short, Args: exit.Args(1, -1, "checkpoint"),
		Example: "  trainyard checkpoints " + verb + " j7.c3",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				var list api.CheckpointList
				for _, name := range args {
					pinned, err := c.PinCheckpoint(cmd.Context(), id.Checkpoint(name), on)
					if err != nil {
						return err
					}

					list.Checkpoints = append(list.Checkpoints, pinned)
				}

				return a.Show(list, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "%s %s\n", strings.Join(args, ", "), words)
					return err
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) removeCheckpoint() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove CHECKPOINT...", Aliases: []string{"rm"}, Short: "Remove checkpoints",
		Args: exit.Args(1, -1, "checkpoint"),
		Long: `Remove checkpoints. Refused for one that is pinned, and for the one from which a job that has not ended
continues.`,
		Example: "  trainyard checkpoints rm j7.c1 j7.c2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := a.sure(cmd.Context(), "Remove "+strings.Join(args, ", ")+"?"); err != nil {
					return err
				}

				for _, name := range args {
					if err := c.RemoveCheckpoint(cmd.Context(), id.Checkpoint(name)); err != nil {
						return err
					}

					if _, err := fmt.Fprintf(a.Stdout, "Checkpoint %s removed.\n", name); err != nil {
						return err
					}
				}

				return nil
			})
		},
	}

	a.YesFlag(cmd)

	return cmd
}

func (a *app) downloadCheckpoint() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "download CHECKPOINT", Short: "Download the files of a checkpoint", Args: exit.Args(1, 1, "checkpoint"),
		Example: "  trainyard checkpoints download j7.c3 --to ./model",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				to = args[0]
			}

			return a.withClient(func(c *api.Client) error {
				return a.doDownload(cmd.Context(), c, id.Checkpoint(args[0]), to)
			})
		},
	}

	cmd.Flags().StringVar(&to, "to", "", "`directory` to write to; it must not exist; default: the name of the checkpoint")

	return cmd
}

// doDownload writes the files of a checkpoint into a new directory. One that is there under its name is complete.
func (a *app) doDownload(ctx context.Context, c *api.Client, name id.Checkpoint, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return fault.New(fault.Conflict, "file_exists", "%s already exists", to).WithRemedy("choose another name with --to")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at %s: %w", to, err)
	}

	found, err := c.Checkpoint(ctx, name)
	if err != nil {
		return err
	}

	archive, err := c.DownloadCheckpoint(ctx, name)
	if err != nil {
		return err
	}

	defer func() { _ = archive.Close() }() // it was only read

	part := to + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("remove an unfinished download: %w", err)
	}
	if err := os.MkdirAll(part, 0o700); err != nil {
		return fmt.Errorf("create %s: %w", part, err)
	}

	progress := a.NewProgress()
	done := int64(0)
	files, err := unpack(archive, part, func(n int) {
		done += int64(n)
		progress.Set("%s of %s", humanize.Size(done), humanize.Size(found.Size))
	})
	progress.Done()

	if err == nil {
		err = os.Rename(part, to)
	}

	if err != nil {
		return errors.Join(fmt.Errorf("download %s: %w", name, err), os.RemoveAll(part))
	}

	_, err = fmt.Fprintf(a.Stdout, "%s of %s in %s\n", humanize.Count(files, "file"), name, to)

	return err
}

// unpack writes the files of an archive into a directory and never outside it, whatever their names.
func unpack(archive io.Reader, dir string, written func(int)) (files int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	in := tar.NewReader(archive)
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, fmt.Errorf("the archive broke off: %w", err)
		}

		if err := unpackFile(root, in, head, written); err != nil {
			return files, fmt.Errorf("write %s: %w", head.Name, err)
		}

		files++
	}
}

func unpackFile(root *os.Root, in *tar.Reader, head *tar.Header, written func(int)) (err error) {
	name := filepath.FromSlash(head.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}

	if head.Typeflag == tar.TypeSymlink {
		return root.Symlink(head.Linkname, name)
	}

	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(head.Mode)&0o777)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	_, err = io.Copy(f, &counted{in, written})

	return err
}

// counted says how many bytes were read.
type counted struct {
	r    io.Reader
	read func(int)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read(n)

	return n, err
}
