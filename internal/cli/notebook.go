package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// notebookPort is where Jupyter is expected.
const notebookPort = 8888

// notebookFolder is where Jupyter writes its address and its token, in the working directory of the job. Only the user
// of the job can read them.
const notebookFolder = ".trainyard-notebook"

// notebookScript starts Jupyter. It takes a port that is probably free, and another one if it is not: the port is read
// from what it writes. It makes up a token of its own.
const notebookScript = `export JUPYTER_RUNTIME_DIR="$PWD/` + notebookFolder + `"
for name in jupyter-lab jupyter-notebook; do
  if command -v $name >/dev/null 2>&1; then jupyter=$name; break; fi
done
if [ -z "${jupyter:-}" ]; then
  echo "Jupyter was not found in the environment of the job; install it, e.g. with --setup 'pip install jupyterlab'" >&2
  exit 127
fi
root=
if [ "$(id -u)" = 0 ]; then root=--allow-root; fi
exec $jupyter --no-browser --ip=127.0.0.1 --port=$((20000 + $$ % 10000)) --ServerApp.root_dir="$PWD" $root`

// notebookFiles prints what the servers of a job have written of themselves.
const notebookFiles = `for f in ` + notebookFolder + `/jpserver-*.json ` + notebookFolder + `/nbserver-*.json; do
  if [ -f "$f" ]; then cat "$f"; fi
done`

// notebook starts Jupyter in a job and forwards a port to it.
func (a *app) notebook() *cobra.Command {
	var rank, local int
	var f interactiveFlags

	cmd := &cobra.Command{
		Use: "notebook [JOB]", Short: "Open a Jupyter notebook in a new job, or in a running one",
		Long: `Start Jupyter in a job of its own, with what the flags ask for, forward a port of this machine to it and
print the address with its token. JupyterLab is started if it is there, otherwise Jupyter Notebook; one of them must be
installed in the environment of the job. Ctrl-C ends the job, unless you give --keep or the connection was lost: then it
goes on until it was idle for --idle, and trainyard notebook JOB comes back to it. You are warned before (see: trainyard
notify). An open page of Jupyter asks its server for news, which counts as use.

With JOB the notebook of that job is opened; if it has none, Jupyter is started beside its program and ends with the
command.`,
		Example: `  trainyard notebook --gpus 1 --workdir . --setup 'pip install jupyterlab'
  trainyard notebook --gpus 1 --idle 2h --keep
  trainyard notebook j7`,
		Args:              exit.Args(0, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			pair := portPair{local: local, orAny: !cmd.Flags().Changed("port")}

			return a.withClient(func(c *api.Client) error {
				if len(args) == 0 {
					return a.newNotebook(cmd, c, &f, pair)
				}

				if err := forNewJobs(cmd); err != nil {
					return err
				}

				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				return a.openNotebook(cmd.Context(), c, j, rank, pair)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "open it beside this `rank` of the job")
	cmd.Flags().IntVar(&local, "port", notebookPort, "`port` of this machine; any free one if the default is taken")
	f.add(cmd)

	return cmd
}

// newNotebook starts a job with Jupyter and forwards a port to it, and ends the job.
func (a *app) newNotebook(cmd *cobra.Command, c *api.Client, f *interactiveFlags, pair portPair) error {
	if cmd.Flags().Changed("rank") {
		return exit.Usagef(cmd, "--rank is for a running job: name one")
	}

	j, err := a.startInteractive(cmd, c, f, notebookScript)
	if err != nil {
		return err
	}

	ctx := cmd.Context()

	var server jupyter
	server, err = a.awaitNotebook(ctx, c, j)
	if err == nil {
		err = a.forwardNotebook(ctx, c, j, 0, server, pair, nil)
	}

	a.leaveInteractive(ctx, c, j, f.keep, "notebook", err)

	return interrupted(ctx, err)
}

// awaitNotebook waits until the Jupyter of a new job listens.
func (a *app) awaitNotebook(ctx context.Context, c *api.Client, j id.Job) (jupyter, error) {
	bounded, cancel := context.WithTimeout(ctx, besideWait)
	defer cancel()

	for {
		server, found, err := findNotebook(bounded, c, j, 0)
		if err == nil && found {
			return server, nil
		}

		detail, failed := c.Job(ctx, j)
		if failed == nil && detail.State.Final() {
			return server, fault.New(fault.Conflict, "job_state", "the notebook has ended: job %s is %s: %s", j, detail.Status,
				detail.Reason).WithRemedy("see what it printed with: trainyard logs %s", j)
		}

		if err != nil && fault.KindOf(err) != fault.Unavailable && fault.KindOf(err) != fault.Conflict {
			return server, err
		}

		if !clock.Sleep(bounded, besideLook) {
			if ctx.Err() != nil {
				return server, ctx.Err()
			}

			return server, fault.New(fault.Conflict, "not_started", "Jupyter has not started within %v", besideWait).
				WithRemedy("see what it printed with: trainyard logs %s", j)
		}
	}
}

// openNotebook forwards a port to the Jupyter of a running job. One that has none gets one as long as it is forwarded.
func (a *app) openNotebook(ctx context.Context, c *api.Client, j id.Job, rank int, pair portPair) error {
	server, found, err := findNotebook(ctx, c, j, rank)
	if err != nil {
		return err
	}

	if found {
		return a.forwardNotebook(ctx, c, j, rank, server, pair, nil)
	}

	b, err := startBeside(ctx, c, j, rank, notebookScript)
	if err != nil {
		return err
	}

	defer b.stop()

	_, err = b.await(ctx, "Jupyter", func() (int, error) {
		server, found, err = findNotebook(ctx, c, j, rank)
		if !found {
			return 0, err
		}

		return server.Port, err
	})
	if err != nil {
		return interrupted(ctx, err)
	}

	return a.forwardNotebook(ctx, c, j, rank, server, pair, b)
}

// forwardNotebook forwards a port of this machine to a notebook until Ctrl-C or the end of the job.
func (a *app) forwardNotebook(
	ctx context.Context, c *api.Client, j id.Job, rank int, server jupyter, pair portPair, b *beside,
) error {
	pair.remote = server.Port
	f := a.forwarder(c, j, rank)
	f.listening = func(at net.Addr, _ int) error {
		token := url.Values{"token": {server.Token}}
		address := url.URL{Scheme: "http", Host: at.String(), Path: "/", RawQuery: token.Encode()}
		_, err := fmt.Fprintf(a.Stdout, "Jupyter in job %s: %s\nCtrl-C ends the connection.\n", j, &address)

		return err
	}

	if b != nil {
		return b.forwardTo(ctx, f, "Jupyter", pair)
	}

	return f.run(ctx, []portPair{pair})
}

// jupyter is what a Jupyter server writes of itself.
type jupyter struct {
	Port  int    `json:"port"`
	Token string `json:"token"`
}

// findNotebook finds the Jupyter server of a job that listens. What one has left that was killed does not count.
func findNotebook(ctx context.Context, c *api.Client, j id.Job, rank int) (jupyter, bool, error) {
	text, err := capture(ctx, c, j, rank, "sh", "-c", notebookFiles)
	if err != nil {
		return jupyter{}, false, err
	}

	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var one jupyter

		err := dec.Decode(&one)
		if err != nil {
			return jupyter{}, false, nil //nolint:nilerr // that was all, or a server is just writing it
		}

		if one.Port < 1 || one.Port > 65535 {
			continue
		}

		open, err := listens(ctx, c, j, rank, one.Port)
		if err != nil || open {
			return one, open, err
		}
	}
}

// interrupted is how a command ends whose work was ended by Ctrl-C before it began.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return exit.With(exit.Interrupted)
	}

	return err
}
