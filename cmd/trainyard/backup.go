package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/auth"
	"trainyard/internal/backup"
	"trainyard/internal/blob"
	"trainyard/internal/blob/s3"
	"trainyard/internal/cli"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/history"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
)

// storeSettings are those of a command that works on the files of a server. It reads the server's
// configuration file, so it knows all settings, but only these matter to it.
func storeSettings() []setting {
	return append(append([]setting{dataSetting}, serverSettings...), logSettings...)
}

// registerStore adds the flags of a command that works on the files of a server.
// It shows those that matter to it.
func registerStore(cmd *cobra.Command, shown ...string) {
	register(cmd, storeSettings())

	for _, s := range storeSettings() {
		if !slices.Contains(shown, s.name) {
			_ = cmd.Flags().MarkHidden(s.name) // it exists: it was just registered
		}
	}
}

func backupCommand(env cli.Env) *cobra.Command {
	without := false
	cmd := &cobra.Command{
		Use:     "backup FOLDER",
		Short:   "Back up the yard of the server on this machine, while it runs",
		GroupID: cli.GroupStart,
		Args:    cobra.ExactArgs(1),
		Long: `Back up the yard of the server on this machine to a new folder, also while the server runs: the
database (SQLite or PostgreSQL), the CA, the output of runs, uploaded files and checkpoints. The copy is
of one moment, and it is checked. Files that an earlier backup beside it has are linked to that, so that only what is
new takes time and room; each folder is complete and can be removed by itself. With a slash at its end FOLDER gets a
new folder inside, named after the time.

The key of the secrets is not in it: copy the file secrets.key of the data directory to another place. With
--blobs s3://… the bucket keeps uploaded files and checkpoints: back it up by its own means, such as
versioning.`,
		Example: "  trainyard backup /backups/yard-monday\n" +
			"  trainyard backup --config /etc/trainyard/server.yaml /backups/",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConfig(cmd, env, storeSettings())
			if err != nil {
				return err
			}

			return backUp(cmd.Context(), c, env, args[0], without)
		},
	}

	registerStore(cmd, "data", "store", "store-password-file", "blobs")
	cmd.Flags().BoolVar(&without, "without-blobs", false,
		"leave out uploaded files, checkpoints and the output of ended runs")

	return cmd
}

// The folders of the data directory that are part of a backup, under these names in it too.
const (
	caFolder   = "ca"
	logsFolder = "logs"
	blobFolder = "blobs"
)

// backUp writes a backup and says what is in it.
func backUp(ctx context.Context, c *config, env cli.Env, folder string, withoutBlobs bool) (err error) {
	yard, err := yardOf(c)
	if err != nil {
		return err
	}

	from, err := c.storeURL()
	if err != nil {
		return err
	}

	began := env.Clock.Now()
	if strings.HasSuffix(folder, "/") {
		folder = filepath.Join(folder, began.UTC().Format("2006-01-02T150405Z"))
	}

	w, err := backup.New(folder, yard)
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, w.Discard())
		}
	}()

	// The database first: the files that it refers to are there then, and what they contain beyond it does no harm.
	if err := sqlstore.Backup(ctx, from, w.Path(backup.Database)); err != nil {
		return err
	}
	if err := w.Include(backup.Database); err != nil {
		return err
	}

	blobs, err := addFolders(ctx, c, w, withoutBlobs)
	if err != nil {
		return err
	}

	m, err := w.Finish(backup.Manifest{
		Version: env.Version, Yard: yard, Store: storeKind(from), Blobs: blobs, Created: began.UTC(),
	})
	if err != nil {
		return err
	}

	say(env.Stdout, "Wrote %s: %s, %s, checked; %d of them were linked to an earlier backup.\n", folder,
		humanize.Count(m.Files, "file"), humanize.Size(m.Bytes), w.Linked)

	if blobs != "" {
		say(env.Stdout, "Uploaded files and checkpoints are not in it: %s.\n", blobs)
	}

	say(env.Stdout, "The key of the secrets is not in it: keep a copy of %s in another place.\n",
		filepath.Join(c.data, keyFile))

	return nil
}

// yardOf returns what tells the yard of the data directory from others: the hash of its CA.
func yardOf(c *config) (string, error) {
	path := filepath.Join(c.data, caFolder)
	if _, err := os.Stat(path); err != nil {
		return "", fault.New(fault.NotFound, "no_yard", "no yard in %s", c.data).WithField("data").
			WithRemedy("name the data directory of the server with --data").WithCause(err)
	}

	ca, err := auth.OpenCA(path, clock.NewSteady().Now())
	if err != nil {
		return "", err
	}

	return ca.Hash(), nil
}

// addFolders adds the folders of the data directory. It returns where the blobs are if they are not among them.
func addFolders(ctx context.Context, c *config, w *backup.Writer, withoutBlobs bool) (blobs string, err error) {
	if err := w.Add(ctx, filepath.Join(c.data, caFolder), caFolder, false); err != nil {
		return "", err
	}
	if err := w.Add(ctx, filepath.Join(c.data, logsFolder), logsFolder, false); err != nil {
		return "", err
	}

	switch {
	case strings.HasPrefix(c.blobs, s3.Scheme):
		return "they are in " + c.blobs, nil
	case withoutBlobs:
		return "they were left out", nil
	}

	if err := w.Add(ctx, blobPath(c), blobFolder, true, blob.Unfinished); err != nil {
		return "", err
	}

	// Once more: a server moves output that an earlier version has archived to other names, and what it moved meanwhile
	// may have been in neither place when that was looked at.
	output := path.Join(blobFolder, archive.Blobs)

	return "", w.Add(ctx, filepath.Join(blobPath(c), archive.Blobs), output, true)
}

func restoreCommand(env cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore [FOLDER]",
		Short:   "Restore the yard of the server on this machine from a backup",
		GroupID: cli.GroupStart,
		Args:    cobra.MaximumNArgs(1),
		Long: `Put a backup back: the files that are missing, and the database. Then prepare it for what happened since:
ids of jobs continue beyond all that were used, and runs that nodes still have from that time are kept apart.
The server must not run. The backup is checked before anything is changed, and the present database is kept. The store
may be another than that of the backup: a backup of SQLite can be restored into PostgreSQL.

FOLDER may be a database file of an earlier version of trainyard backup. Without FOLDER only the preparation is
done, for a database that was restored by other means: with pg_restore, or with a copy of the whole data directory.`,
		Example: "  trainyard restore /backups/yard-monday\n" +
			"  trainyard restore /backups/yard-monday --store postgres://yard@db/yard\n" +
			"  trainyard restore --store postgres://yard@db/yard    # after pg_restore",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConfig(cmd, env, storeSettings())
			if err != nil {
				return err
			}

			if len(args) > 0 {
				if err := putBack(cmd.Context(), c, env.Stdout, args[0]); err != nil {
					return err
				}
			}

			return prepare(cmd.Context(), c, env.Stdout, c.logger(env))
		},
	}

	registerStore(cmd, "data", "store", "store-password-file", "blobs", "s3-endpoint", "s3-path-style")

	return cmd
}

// putBack puts a backup back, files first: they do no harm if the database does not follow.
func putBack(ctx context.Context, c *config, out io.Writer, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return fault.New(fault.NotFound, "no_backup", "no backup %s", from).WithCause(err)
	}

	file := from
	if info.IsDir() {
		file = filepath.Join(from, backup.Database)
		if err := putFilesBack(ctx, c, out, from); err != nil {
			return err
		}
	}

	to, err := c.storeURL()
	if err != nil {
		return err
	}

	keep, err := freeName(filepath.Join(c.data, "yard-replaced"), ".db")
	if err != nil {
		return err
	}

	kept, err := sqlstore.PutBack(ctx, to, file, sqlstore.Former{Keep: keep, Lease: c.leaderLease})
	if err != nil {
		return err
	}

	say(out, "Restored %s.\n", from)

	if kept != "" {
		say(out, "The database that was there is kept as %s.\n", kept)
	}

	if _, err := os.Stat(filepath.Join(c.data, keyFile)); errors.Is(err, fs.ErrNotExist) {
		say(out, "%s is missing in %s: put its copy back before you start the server, so that secrets can be read.\n",
			keyFile, c.data)
	}

	return nil
}

// freeName returns the first name of its kind that no file has.
func freeName(start, end string) (string, error) {
	for n := 1; ; n++ {
		name := start + end
		if n > 1 {
			name = fmt.Sprintf("%s-%d%s", start, n, end)
		}

		_, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", fmt.Errorf("look for a free name: %w", err)
		}
	}
}

// putFilesBack checks a backup and puts the files back that are missing in the data directory.
func putFilesBack(ctx context.Context, c *config, out io.Writer, folder string) error {
	m, err := backup.Open(folder)
	if err != nil {
		return err
	}

	if _, err := os.Stat(filepath.Join(c.data, caFolder)); err == nil {
		if yard, err := yardOf(c); err != nil {
			return err
		} else if yard != m.Yard {
			return fault.New(fault.Conflict, "another_yard", "%s is a backup of another yard than that in %s", folder, c.data).
				WithRemedy("name the data directory of that yard, or a new one, with --data")
		}
	}

	if err := backup.Verify(ctx, folder); err != nil {
		return err
	}

	files := 0
	targets := map[string]string{
		caFolder: filepath.Join(c.data, caFolder), logsFolder: filepath.Join(c.data, logsFolder), blobFolder: blobPath(c),
	}

	if strings.HasPrefix(c.blobs, s3.Scheme) {
		delete(targets, blobFolder)
		say(out, "Blobs of the backup are not copied to %s: copy what is missing there from %s.\n", c.blobs,
			filepath.Join(folder, blobFolder))
	}

	for _, name := range slices.Sorted(maps.Keys(targets)) {
		n, err := backup.PutBack(ctx, folder, name, targets[name])
		if err != nil {
			return err
		}

		files += n
	}

	say(out, "%s is complete: %s of %s, made on %s. %s missing here and put back.\n", folder,
		humanize.Count(m.Files, "file"), humanize.Size(m.Bytes), m.Created.Format("2006-01-02 15:04 UTC"),
		wereMissing(files))

	return nil
}

func wereMissing(n int) string {
	switch n {
	case 0:
		return "No file was"
	case 1:
		return "One file was"
	}

	return humanize.Count(n, "file") + " were"
}

// prepare begins a new incarnation of the yard.
func prepare(ctx context.Context, c *config, out io.Writer, log *slog.Logger) (err error) {
	clk := clock.NewSteady()

	f, err := openOutput(ctx, c, log)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.mark.Close()) }()

	logs, err := archive.Open(f.logDir, f.blobs, clk)
	if err != nil {
		return err
	}

	st, _, err := openStore(ctx, c, clk, log)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, st.Close()) }()

	if err := leadAlone(ctx, c, st); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, st.Resign(ctx)) }()

	state, err := st.Load(ctx, clk.Now().Add(-c.keepFinal))
	if err != nil {
		return fmt.Errorf("load the yard: %w", err)
	}

	continueTime(clk, &state, log)

	report, err := history.Resume(ctx, history.Deps{
		Store: st, Logs: logs, Mark: f.mark, Log: log, Restored: "trainyard restore was run",
	}, clk.Now(), &state)
	if err != nil {
		return err
	}

	describeRestore(out, &report)

	return nil
}

// leadAlone makes this process the leader, which is possible only if no server leads.
func leadAlone(ctx context.Context, c *config, st store.Store) error {
	name, err := randomHex()
	if err != nil {
		return err
	}

	// A server that was killed leads until its lease has expired.
	ctx, cancel := context.WithTimeout(ctx, 2*c.leaderLease)
	defer cancel()

	candidate := store.Candidate{Server: store.Server{Name: "restore-" + name}, Lease: c.leaderLease}
	if _, err := st.Lead(ctx, candidate); err != nil {
		return fault.New(fault.Conflict, "database_in_use", "a server is using the database").
			WithRemedy("stop all servers of the yard first").WithCause(err)
	}

	return nil
}

// maxStrays is how many runs with output that is kept apart are listed.
const maxStrays = 20

// describeRestore says what was found and what follows from it.
func describeRestore(out io.Writer, r *history.Report) {
	if r.Found.Job > r.Last.Job {
		say(out, "The newest job of the database is j%d. There are traces of jobs up to j%d, submitted after the backup.\n",
			r.Last.Job, r.Found.Job)
	} else {
		say(out, "No job that was submitted after the backup was found on this machine.\n")
	}

	if n := len(r.Strays); n > 0 {
		say(out, "The output of %s is not known to the database and is kept apart:\n", humanize.Count(n, "run"))

		for _, l := range r.Strays[:min(n, maxStrays)] {
			say(out, "  %s rank %d, UID %s\n", l.Run, l.Rank, l.UID)
		}

		if n > maxStrays {
			say(out, "  and %d more\n", n-maxStrays)
		}
	}

	say(out, "The next job will be %s. Start the server now.\n", id.NewJob(r.Incarnation.Last.Job+1))
}
