package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/tarstream"
)

// cp copies files to and from a running job.
func (a *app) cp() *cobra.Command {
	var rank int

	cmd := &cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "Copy files to and from a running job",
		Long: `Copy a file or a folder to or from the working directory of a running job. One of the two is JOB:PATH, with
a path in the working directory; the other is a path on this machine.

If the destination is a folder, or ends with a slash, the copy is put into it; otherwise it gets that name. Files that
are there are replaced. Links are copied as links, unless they lead out of what is copied: those are skipped.

Files of a job that has ended are fetched with trainyard fetch.`,
		Example: `  trainyard cp j7:ckpt/best.pt .
  trainyard cp data/extra j7:data/
  trainyard cp fix.py j7:train.py`,
		Args: exit.Args(2, 2, "source and destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromPath, isFrom := jobPath(args[0])
			to, toPath, isTo := jobPath(args[1])
			if isFrom == isTo {
				return exit.Usagef(cmd, "either the source or the destination must be JOB:PATH, got %s and %s", args[0], args[1])
			}

			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(cmd.Context(), from+to)
				if err != nil {
					return err
				}

				if isFrom {
					return a.copyFrom(cmd.Context(), c, string(j), fromPath, args[1], rank)
				}

				return a.copyTo(cmd.Context(), c, string(j), args[0], toPath, rank)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "copy to or from the working directory of this `rank`")

	return cmd
}

// jobPath takes JOB:PATH apart. A path on this machine that has a colon is written with a slash before it, as ./a:b.
func jobPath(text string) (job, path string, ok bool) {
	job, path, ok = strings.Cut(text, ":")
	if !ok || job == "" || strings.ContainsAny(job, `/\.`) {
		return "", "", false
	}

	return job, path, true
}

// copyTo copies a file or folder of this machine to a job.
func (a *app) copyTo(ctx context.Context, c *api.Client, job, source, path string, rank int) error {
	whole, err := filepath.EvalSymlinks(source)
	if err == nil {
		whole, err = filepath.Abs(whole)
	}

	if err != nil {
		return fault.New(fault.Invalid, "bad_path", "%v", err)
	}

	root, err := os.OpenRoot(filepath.Dir(whole))
	if err != nil {
		return err
	}

	defer func() { _ = root.Close() }()

	t, err := c.OpenTunnel(ctx, id.Job(job), api.TunnelStart{Kind: api.TunnelPut, Rank: rank, Path: path})
	if err != nil {
		return err
	}

	defer func() { _ = t.Close() }()

	r, w := io.Pipe()
	written := make(chan error, 1)

	go func() {
		err := tarstream.Write(root, filepath.Base(whole), w)
		_ = w.CloseWithError(err)
		written <- err
	}()

	progress := a.NewProgress()
	defer progress.Done()

	err = finishCopy(ctx, t, &metered{r, func(n int64) { progress.Set("%s sent", humanize.Size(n)) }, 0}, nil)
	_ = r.Close() // lets the writer end if the other side did first

	// If the other side ended first, that is why this one could not go on.
	if failed := <-written; err == nil {
		err = failed
	}

	return err
}

// copyFrom copies a file or folder of a job to this machine.
func (a *app) copyFrom(ctx context.Context, c *api.Client, job, path, destination string, rank int) error {
	dir, target := filepath.Dir(destination), filepath.Base(destination)
	if strings.HasSuffix(destination, string(filepath.Separator)) {
		dir, target = filepath.Dir(filepath.Clean(destination)), filepath.Base(destination)+"/"
	}

	if info, err := os.Stat(destination); err == nil && info.IsDir() {
		dir, target = destination, "."
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Invalid, "bad_path", "%v", err)
	}

	defer func() { _ = root.Close() }()

	t, err := c.OpenTunnel(ctx, id.Job(job), api.TunnelStart{Kind: api.TunnelGet, Rank: rank, Path: path})
	if err != nil {
		return err
	}

	defer func() { _ = t.Close() }()

	r, w := io.Pipe()
	read := make(chan error, 1)
	progress := a.NewProgress()
	defer progress.Done()

	go func() {
		from := &metered{r, func(n int64) { progress.Set("%s received", humanize.Size(n)) }, 0}
		err := tarstream.Read(root, target, from, func(link string) {
			a.Note("skipped %s: the link leads out of what is copied", table.Plain(link))
		})
		if err == nil {
			_, err = io.Copy(io.Discard, from) // what a tar stream has after its end
		}

		_ = r.CloseWithError(err)
		read <- err
	}()

	err = finishCopy(ctx, t, nil, w)
	_ = w.CloseWithError(err)

	// What could not be written here is why nothing more was taken.
	if failed := <-read; failed != nil {
		err = failed
	}

	return err
}

// finishCopy lets a copy go on to its end. What the other side says about it is the error if it fails.
func finishCopy(ctx context.Context, t *api.Tunnel, in io.Reader, out io.Writer) error {
	var said bytes.Buffer
	if out == nil {
		out = io.Discard
	}

	end, err := converse(ctx, t, in, out, &bounded{&said})
	switch {
	case err != nil:
		return err
	case end.Reason != "":
		return fault.New(fault.Conflict, "copy_failed", "the copy was ended: %s", end.Reason)
	case end.Exit != 0:
		text := strings.TrimSpace(said.String())
		if text == "" {
			text = fmt.Sprintf("exit code %d", end.Exit)
		}

		return fault.New(fault.Conflict, "copy_failed", "cannot copy: %s", table.Plain(text))
	}

	return nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ *bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	const most = 4096
	if room := most - b.Len(); room > 0 {
		b.Buffer.Write(data[:min(room, len(data))])
	}

	return len(data), nil
}

// metered says how much was read.
type metered struct {
	io.Reader
	say   func(n int64)
	total int64
}

func (c *metered) Read(buf []byte) (int, error) {
	n, err := c.Reader.Read(buf)
	c.total += int64(n)
	c.say(c.total)

	return n, err
}
