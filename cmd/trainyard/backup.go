package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

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
	cmd := &cobra.Command{
		Use:     "backup FILE",
		Short:   "Copy the server's database to a file",
		GroupID: cli.GroupStart,
		Args:    cobra.ExactArgs(1),
		Long: `Copy the database of the server on this machine to a new file. The copy is consistent, also while the
server runs. It does not contain the CA, the key of the secrets, the output of runs, uploaded files and
checkpoints; copy the directories ca, logs and blobs of the data directory after it, and the file
secrets.key to another place. With --blobs s3://… the bucket takes the
place of blobs: back it up by its own means, such as versioning.

With PostgreSQL use pg_dump instead.`,
		Example: "  trainyard backup /backups/yard-monday.db\n  trainyard backup --data /var/lib/trainyard yard.db.backup",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConfig(cmd, env, storeSettings())
			if err != nil {
				return err
			}
			from, err := c.storeURL()
			if err != nil {
				return err
			}

			if err := sqlstore.Backup(cmd.Context(), from, args[0]); err != nil {
				return err
			}

			info, err := os.Stat(args[0])
			if err != nil {
				return fmt.Errorf("look at the backup: %w", err)
			}

			say(env.Stdout, "Wrote %s (%s).\n", args[0], humanize.Size(info.Size()))

			return nil
		},
	}

	registerStore(cmd, "data", "store")

	return cmd
}

func restoreCommand(env cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore [FILE]",
		Short:   "Restore the server's database from a backup",
		GroupID: cli.GroupStart,
		Args:    cobra.MaximumNArgs(1),
		Long: `Make a backup the database of the server on this machine, and prepare it for what happened since: ids of
jobs continue beyond all that were used, and runs that nodes still have from that time are kept apart.
The server must not run. The present database is kept beside the restored one.

Without FILE only the preparation is done, for a database that was restored by other means: with
pg_restore, or with a copy of the whole data directory.`,
		Example: "  trainyard restore /backups/yard-monday.db\n" +
			"  trainyard restore --store postgres://yard@db/yard    # after pg_restore",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConfig(cmd, env, storeSettings())
			if err != nil {
				return err
			}

			file := ""
			if len(args) > 0 {
				file = args[0]
			}

			return restore(cmd.Context(), c, env.Stdout, c.logger(env), file)
		},
	}

	registerStore(cmd, "data", "store", "blobs", "s3-endpoint", "s3-path-style")

	return cmd
}

// restore puts a backup back, if one is named, and begins a new incarnation of the yard.
func restore(ctx context.Context, c *config, out io.Writer, log *slog.Logger, file string) (err error) {
	if file != "" {
		to, err := c.storeURL()
		if err != nil {
			return err
		}

		kept, err := sqlstore.PutBack(ctx, to, file)
		if err != nil {
			return err
		}

		say(out, "Restored %s.\n", file)

		if kept != "" {
			say(out, "The database that was there is kept as %s.\n", kept)
		}
	}

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
