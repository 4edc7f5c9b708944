package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/container"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// Containers makes the containers of ranks that have an image, see package container.
type Containers interface {
	Pull(ctx context.Context, p container.Pull, progress func(words string)) (container.Image, error)
	Hold(ctx context.Context, r container.Request) (rundir.Container, error)
	Sweep(ctx context.Context, agent string, live func(rank string) bool) error
	Prune(ctx context.Context) error
}

// checkContainer refuses a rank with an image where it would have no container, or no walls.
func (r *Runtime) checkContainer(s rundir.Spec) error {
	switch {
	case s.Launch.Image == "":
		return nil
	case r.opt.Containers == nil || r.opt.Users == nil:
		return fault.New(fault.Unavailable, "no_containers", "this node does not run containers")
	case !job.ImageName(s.Launch.Image):
		return fault.New(fault.Invalid, "bad_image", "%q is not the name of a container image", s.Launch.Image).
			WithField("image")
	case len(s.Launch.GPUs) > 0 && len(s.Devices) == 0 && !s.Fake:
		return fault.New(fault.Unavailable, "no_gpus", "this node can give containers no GPUs but NVIDIA's")
	case s.Launch.Snapshot:
		return fault.New(fault.Invalid, "no_snapshots", "no snapshots are taken of programs in containers")
	}

	return nil
}

// prepareContainer pulls the image of a rank and starts its container. The pipe that holds the container stays open
// until the supervisor has it, or the rank ends without one.
func (r *Runtime) prepareContainer(ctx context.Context, rk *rank) error {
	r.mu.Lock()
	auth := rk.registryAuth
	rk.registryAuth = ""
	r.mu.Unlock()

	pull := container.Pull{Image: rk.rec.Launch.Image, Secret: rk.rec.Launch.RegistryAuth, Auth: auth}

	img, err := r.opt.Containers.Pull(ctx, pull, r.progressOf(rk))
	if err != nil {
		return err
	}

	dir := filepath.Join(rk.dir, rundir.ContainerDir)
	if _, err := os.Lstat(dir); err == nil { // left by an agent process that did not finish
		r.tasks.Go(r.sweepContainers)
	}
	if err := rundir.RemoveTree(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}

	if rk.holds, err = rundir.MakeHolderPipe(rk.dir); err != nil {
		return err
	}

	request := container.Request{Agent: r.dir, Rank: rk.name, Dir: dir, Image: img}
	if !rk.rec.Fake {
		request.GPUs = rk.rec.Devices
	}

	c, err := r.opt.Containers.Hold(ctx, request)
	if err != nil {
		select {
		case r.unheld <- struct{}{}:
		default:
		}

		return err
	}

	if err := r.fitContainer(rk, &c, img); err != nil {
		return err
	}

	r.mu.Lock()
	rk.state.Digest, rk.state.Reason = c.Digest, ""
	r.mu.Unlock()

	if err := rundir.WriteJSON(filepath.Join(dir, rundir.ContainerFile), c, false); err != nil {
		return err
	}

	r.openEndpoint(rk)

	return nil
}

// openEndpoint serves the agent's endpoint for metrics in the network of a rank's container, if it has one of its own.
// A program that cannot reach it can still report by files.
func (r *Runtime) openEndpoint(rk *rank) {
	if rk.rec.Launch.Image == "" || r.opt.Endpoint == nil {
		return
	}

	c, err := rundir.ReadContainer(rk.dir)
	if err != nil || !c.OwnNetwork || !c.Alive() {
		return // it is just ending
	}

	address, serve := r.opt.Endpoint()
	if address == "" {
		return
	}

	var l net.Listener

	err = sandbox.InNetwork(filepath.Join("/proc", strconv.Itoa(c.PID), "ns", "net"), func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(r.ctx, "tcp", address)
		return err
	})
	if err != nil {
		r.log.Warn("a program in a container cannot send metrics", "rank", rk.name, "error", err)
		return
	}

	r.mu.Lock()
	rk.endpoint = l
	r.mu.Unlock()

	r.tasks.Go(func() {
		defer context.AfterFunc(r.ctx, func() { _ = l.Close() })()

		serve(l)
	})
}

// closeEndpoint ends what openEndpoint has begun: a socket keeps the network of its container.
func (r *Runtime) closeEndpoint(rk *rank) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if rk.endpoint != nil {
		_ = rk.endpoint.Close()
		rk.endpoint = nil
	}
}

// progressEvery is how often the progress of a preparation is announced at most.
const progressEvery = time.Second

// progressOf returns a function that announces how far the preparation of a rank is.
func (r *Runtime) progressOf(rk *rank) func(words string) {
	var last time.Time

	return func(words string) {
		now := r.clk.Now()
		if now.Sub(last) < progressEvery {
			return
		}

		last = now

		r.mu.Lock()
		defer r.mu.Unlock()

		rk.state.Reason = words
		r.announce()
	}
}

// fitContainer checks a container that was just started, and completes what the supervisor needs to know of it.
func (r *Runtime) fitContainer(rk *rank, c *rundir.Container, img container.Image) error {
	path := filepath.Join("/proc", strconv.Itoa(c.PID), "root")

	root, err := os.OpenRoot(path)
	if err != nil {
		return fmt.Errorf("look into the container: %w", err)
	}

	defer func() { _ = root.Close() }()

	if len(rk.rec.Devices) > 0 && !rk.rec.Fake {
		if err := sandbox.CheckGPUs(path, rk.rec.Devices); err != nil {
			return err
		}
	}

	user := rk.rec.User
	home := filepath.Join(rk.dir, rundir.HomeDir)
	passwd := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", user.Name, user.UID, user.GID, home)
	group := fmt.Sprintf("%s:x:%d:\n", user.Name, user.GID)

	if err := errors.Join(
		addLine(root, "etc/passwd", filepath.Join(rk.dir, rundir.ContainerDir, rundir.PasswdFile), passwd),
		addLine(root, "etc/group", filepath.Join(rk.dir, rundir.ContainerDir, rundir.GroupFile), group),
	); err != nil {
		return err
	}

	// Unlike a variable, programs cannot drop it by mistake, and a loader that does not know the file ignores it.
	if library := rk.rec.ShareLibrary; library != "" {
		to := filepath.Join(rk.dir, rundir.ContainerDir, rundir.PreloadFile)
		if err := addLine(root, "etc/ld.so.preload", to, library+"\n"); err != nil {
			return err
		}
	}

	// The set-up of one image is none for another that has the same name now.
	base := containerEnv(r.base, r.opt.PassEnv, img.Env)
	rec := rk.rec

	if c.OwnNetwork { // in which the node has no address, and there are no other nodes
		rec.Launch.Nodes = []string{""}
	}

	rec.Setup, err = planSetup(r.dir, rec.Launch, base, user, img.Digest)
	if err != nil {
		return err
	}

	c.Setup, c.Env = rec.Setup, environment(base, &rec, r.dir)

	return nil
}

// maxAccounts bounds how much of an image's list of users is read.
const maxAccounts = 1 << 20

// addLine writes a file of an image, with one more line, to a path of the machine. What an image has there may be
// anything; without a plain file there is that line alone.
func addLine(root *os.Root, name, to, line string) error {
	var text []byte

	if f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() {
			text, err = io.ReadAll(io.LimitReader(f, maxAccounts))
		}

		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read %s of the image: %w", name, err)
		}
	}

	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}

	//nolint:gosec // every user of the container reads it
	return os.WriteFile(to, append(text, line...), 0o644)
}

// networkSettings are the settings of a machine that are as good in a container: they are about its network, not about
// its files.
var networkSettings = []string{
	"TZ", "NCCL_*", "RCCL_*", "GLOO_*", "UCX_*", "UCC_*", "FI_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
}

// containerEnv returns the variables that programs in a container inherit: those of its image, and of the machine's
// those about the network and those that the operator names.
func containerEnv(base map[string]string, more, image []string) map[string]string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

	for name, value := range base {
		if about, _ := matches(slices.Concat(networkSettings, more), name); about {
			env[name] = value
		}
	}

	for _, entry := range image {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" && !strings.HasPrefix(name, agentPrefix) {
			env[name] = value
		}
	}

	return env
}

// releaseContainer lets a container go that no supervisor has taken over.
func (rk *rank) releaseContainer() {
	if rk.holds != nil {
		_ = rk.holds.Close()
		rk.holds = nil
	}
}

// sweepEvery is how often containers and images that nobody needs are looked for, and sweepAgain when that is after
// the start of the agent, or after a container was not wanted any more while it was made: the engine may go on with it.
const (
	sweepEvery = 10 * time.Minute
	sweepAgain = 20 * time.Second
)

// keepSweeping removes containers and images that nobody needs, until Close.
func (r *Runtime) keepSweeping() {
	for wait := sweepAgain; ; wait = sweepEvery {
		r.sweepContainers()

		switch clock.Wait(r.ctx, wait, r.unheld) {
		case clock.Ended:
			return
		case clock.Woken:
			clock.Sleep(r.ctx, sweepAgain)
		case clock.Passed:
		}
	}
}

// sweepContainers removes containers and images that nobody needs.
func (r *Runtime) sweepContainers() {
	if r.opt.Containers == nil {
		return
	}

	live := func(name string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()

		rk := r.ranks[name]

		return rk != nil && rk.state.State != job.RunEnded
	}

	err := r.opt.Containers.Sweep(r.ctx, r.dir, live)
	if err == nil {
		err = r.removeRemains()
	}

	err = errors.Join(err, r.opt.Containers.Prune(r.ctx))
	if r.ctx.Err() != nil {
		return
	}

	// An engine that cannot be reached is said once, and not every time.
	problem := fmt.Sprint(err)
	r.mu.Lock()
	said := r.sweepProblem == problem
	r.sweepProblem = problem
	r.mu.Unlock()

	if err != nil && !said {
		r.log.Warn("cannot clean up containers and images", "error", err)
	}
}

// removeRemains removes directories of ranks that are gone. An engine makes a directory again that it is to mount: that
// of a rank which ended while its container was made, and was forgotten. None is removed with something else in it.
func (r *Runtime) removeRemains() error {
	runs := filepath.Join(r.dir, rundir.RunsDir)
	list, err := os.ReadDir(runs)
	errs := []error{err}

	for _, e := range list {
		r.mu.Lock()
		known := r.ranks[e.Name()] != nil
		r.mu.Unlock()

		if known || strings.HasPrefix(e.Name(), ".") {
			continue
		}

		dir := filepath.Join(runs, e.Name())
		err := os.Remove(filepath.Join(dir, rundir.ContainerDir))
		if err == nil {
			err = os.Remove(dir)
		}

		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}
