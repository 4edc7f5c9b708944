// Package slurm runs a whole Slurm cluster of Debian's packages in one folder,
// tuned for throughput, and submits jobs to it by sbatch, by REST and by srun.
//
// It never uses Debian's own configuration, keys or ports, and leaves nothing
// running. The benchmark calls it, to compare Trainyard with a fair opponent on the same
// machine; scripts/setup-slurm.sh installs the packages.
package slurm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trainyard/internal/clock"
	"trainyard/test/bench/daemon"
)

// searchPath is where Debian puts the programs. Clients and jobs get this small
// environment and no more: sbatch sends its whole environment along.
const searchPath = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// patience is how long a daemon may take to answer for the first time.
const patience = 3 * time.Minute

// Cluster is a running Slurm: munged, slurmctld, one slurmd and slurmrestd.
type Cluster struct {
	dir     string
	env     []string
	daemons daemon.Group
	threads int
	restURL string
	token   string
}

// Start starts a cluster without any jobs in a new folder under the system's
// temporary one, with so many threads for slurmrestd. The caller must call Stop.
func Start(ctx context.Context, restThreads int) (*Cluster, error) {
	if err := installed(); err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "trainyard-bench-slurm-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for Slurm: %w", err)
	}

	c := &Cluster{
		dir:     dir,
		env:     []string{searchPath, "SLURM_CONF=" + dir + "/slurm.conf"},
		daemons: daemon.Group{Dir: dir},
		threads: restThreads,
	}

	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start Slurm: %w", err), c.Stop())
	}

	return c, nil
}

// installed says what is missing, and how to get it.
func installed() error {
	if os.Geteuid() != 0 {
		return errors.New("slurm needs root: its daemons run jobs as their owners")
	}

	for _, name := range []string{"munged", "slurmctld", "slurmd", "slurmrestd", "sbatch", "srun"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("slurm is not installed (run scripts/setup-slurm.sh): %w", err)
		}
	}

	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	ports, err := daemon.FreePorts(ctx, 3)
	if err != nil {
		return err
	}
	if err := c.prepare(conf{dir: c.dir, ctldPort: ports[0], nodePort: ports[1]}); err != nil {
		return err
	}
	if err := c.startMunge(ctx); err != nil {
		return err
	}
	if err := c.daemons.Start("slurmctld", c.command(context.WithoutCancel(ctx), "slurmctld", "-D")); err != nil {
		return err
	}
	if err := c.daemons.Await(ctx, patience, c.ask("scontrol", "ping", "is UP")); err != nil {
		return fmt.Errorf("wait for slurmctld: %w", err)
	}
	if err := c.daemons.Start("slurmd", c.command(context.WithoutCancel(ctx), "slurmd", "-D", "-N", "n1")); err != nil {
		return err
	}
	if err := c.daemons.Await(ctx, patience, c.ask("sinfo", "-hoSTATE=%T", "STATE=idle")); err != nil {
		return fmt.Errorf("wait for slurmd: %w", err)
	}

	return c.startREST(ctx, ports[2])
}

// prepare writes the configuration and the keys.
func (c *Cluster) prepare(cf conf) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}

	cf.host, _, _ = strings.Cut(host, ".")

	// slurmrestd, which runs as another user, reads slurm.conf in it.
	if err := os.Chmod(c.dir, 0o755); err != nil { //nolint:gosec // the keys in it are 0600
		return fmt.Errorf("open the folder to slurmrestd: %w", err)
	}

	for _, sub := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(c.dir, sub), 0o750); err != nil {
			return fmt.Errorf("make a folder of Slurm: %w", err)
		}
	}

	for _, name := range []string{"munge.key", "jwt.key"} {
		key := make([]byte, 128)
		if _, err := rand.Read(key); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(c.dir, name), key, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}

	//nolint:gosec // slurmrestd reads it as another user
	if err := os.WriteFile(filepath.Join(c.dir, "slurm.conf"), []byte(cf.text()), 0o644); err != nil {
		return fmt.Errorf("write slurm.conf: %w", err)
	}

	return nil
}

// startMunge starts the authentication daemon, with ten threads and not its
// usual two: every submission asks it.
func (c *Cluster) startMunge(ctx context.Context) error {
	socket := c.dir + "/munge.socket"
	cmd := c.command(
		context.WithoutCancel(ctx),
		"munged",
		"--foreground",
		"--num-threads=10",
		"--key-file="+c.dir+"/munge.key",
		"--socket="+socket,
		"--pid-file="+c.dir+"/munged.pid",
		"--log-file="+c.dir+"/munged.log",
		"--seed-file="+c.dir+"/munge.seed",
	)

	if err := c.daemons.Start("munged", cmd); err != nil {
		return err
	}

	err := c.daemons.Await(ctx, patience, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}

		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("wait for munged: %w", err)
	}

	return nil
}

// startREST starts slurmrestd as the package's own user: its manual wants it to
// be neither root nor SlurmUser.
func (c *Cluster) startREST(ctx context.Context, port int) error {
	owner, err := user.Lookup("slurm")
	if err != nil {
		return fmt.Errorf("find the user of slurmrestd: %w", err)
	}

	uid, err := strconv.ParseUint(owner.Uid, 10, 32)
	if err != nil {
		return fmt.Errorf("read the user's number: %w", err)
	}

	gid, err := strconv.ParseUint(owner.Gid, 10, 32)
	if err != nil {
		return fmt.Errorf("read the group's number: %w", err)
	}

	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))

	// Only the job plugin: the other one insists on accounting.
	cmd := c.command(
		context.WithoutCancel(ctx),
		"slurmrestd",
		"-s",
		"openapi/v0.0.38",
		"-a",
		"rest_auth/jwt",
		"-t",
		strconv.Itoa(c.threads),
		addr,
	)

	cmd.Env = append(cmd.Env, "SLURM_JWT=daemon")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := c.daemons.Start("slurmrestd", cmd); err != nil {
		return err
	}

	out, err := c.output(ctx, "scontrol", "token", "lifespan=86400")
	if err != nil {
		return err
	}

	c.token = strings.TrimPrefix(strings.TrimSpace(out), "SLURM_JWT=")
	c.restURL = "http://" + addr + "/slurm/v0.0.38"
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	err = c.daemons.Await(
		ctx,
		patience,
		func(ctx context.Context) error { return c.call(ctx, probe, http.MethodGet, "/ping", nil, nil) },
	)
	if err != nil {
		return fmt.Errorf("wait for slurmrestd: %w", err)
	}

	return nil
}

// Stop lets running jobs end, stops every daemon and removes the folder. It may
// be called after an interrupt and after a failed start.
func (c *Cluster) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	for c.restURL != "" {
		out, err := c.output(ctx, "squeue", "-h", "-t", "R,CG", "-o", "%i")
		if err != nil || out == "" || !clock.Sleep(ctx, 50*time.Millisecond) {
			break // a cluster that does not answer has nothing to wait for
		}
	}

	return errors.Join(c.daemons.Stop(), c.killSteps(), os.RemoveAll(c.dir))
}

// killSteps ends step daemons that outlived slurmd: they leave its process
// group by design, and are known by this cluster's configuration in their environment.
func (c *Cluster) killSteps() error {
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}

	for _, path := range environs {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "SLURM_CONF="+c.dir+"/slurm.conf\x00") {
			continue // gone meanwhile, or not ours
		}

		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end a step of Slurm: %w", err)
		}
	}

	return nil
}
