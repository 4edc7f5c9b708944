// Package container makes containers for ranks with an image, through the API that Docker and podman share.
//
// It serves the step execute of a job's path. The agent pulls the image of a launch (Pull) and starts a container of it
// (Hold) in which nothing of the job runs: its only process holds the root file system, the devices and the network
// until the supervisor of the rank is gone. The program joins it there, see package sandbox. Images that no run has
// used for long are removed (Prune), and so are containers that an engine has left behind (Sweep).
//
// The package decides nothing about runs, and gives the engine no path of a job.
package container

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// Values of Options.Socket and Options.Network.
const (
	Auto        = "auto"
	None        = "none"
	OwnNetwork  = "own"
	HostNetwork = "host"
)

// sockets are where engines listen, in the order in which they are tried.
var sockets = []string{"/run/podman/podman.sock", "/run/docker.sock", "/var/run/docker.sock"}

// answerTime bounds calls that an engine answers at once.
const answerTime = 20 * time.Second

// Options configures an Engine. Dir and Clock are required.
type Options struct {
	Dir string // where the package remembers what it has pulled
	// Socket is that of the engine; Auto, also if left out, for the first one that is there.
	Socket string
	// Network is OwnNetwork, also if left out, or HostNetwork.
	Network string
	// Auth is the file with credentials for registries, as docker login and podman login write it; "" for none.
	Auth string
	// MaxImages is how much room pulled images may take, and ImageAge how long one is kept that no run uses; the defaults
	// are 200GB and 30 days.
	MaxImages job.Bytes
	ImageAge  time.Duration
	Clock     clock.Clock
}

// Engine is the container engine of this machine. Its methods may be called from several goroutines.
type Engine struct {
	opt    Options
	socket string
	cli    *client.Client
	images images

	process string // marks the containers that this one makes
}

// Open returns the engine of this machine. It need not be there yet: Look says whether it is.
func Open(opt Options) (*Engine, error) {
	if opt.MaxImages == 0 {
		opt.MaxImages = 200 << 30
	}

	if opt.ImageAge == 0 {
		opt.ImageAge = 30 * 24 * time.Hour
	}

	e := &Engine{opt: opt, socket: opt.Socket, process: rand.Text()}
	if e.socket == "" || e.socket == Auto {
		e.socket = findSocket()
	}

	var err error
	e.cli, err = client.New(client.WithHost("unix://" + e.socket))
	if err != nil {
		return nil, fmt.Errorf("open the container engine at %s: %w", e.socket, err)
	}

	if err := e.images.load(filepath.Join(opt.Dir, imagesFile)); err != nil {
		return nil, err
	}

	return e, nil
}

// findSocket returns the first socket that is there, or that of podman.
func findSocket() string {
	for _, path := range sockets {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}

	return sockets[0]
}

// Close ends the connections with the engine.
func (e *Engine) Close() error { return e.cli.Close() }

// Look says whether containers can be made here, and by which engine.
func (e *Engine) Look(ctx context.Context) fleet.Containers {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()

	out := fleet.Containers{HostNetwork: e.opt.Network == HostNetwork}

	if _, known := holderText[runtime.GOARCH]; !known {
		out.Reason = "containers are not supported on " + runtime.GOARCH
		return out
	}

	version, err := e.cli.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		out.Reason = e.unreachable(err).Error()
		return out
	}

	out.Engine = "Docker " + version.Version
	if isPodman(version) {
		out.Engine = "podman " + version.Version
	}

	info, err := e.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		out.Reason = e.unreachable(err).Error()
		return out
	}

	rootless := func(option string) bool { return strings.Contains(option, "name=rootless") }
	if slices.ContainsFunc(info.Info.SecurityOptions, rootless) {
		out.Reason = fmt.Sprintf("%s at %s is rootless: use one that runs as root", out.Engine, e.socket)
		return out
	}

	out.OK = true

	return out
}

// isPodman reports whether an engine that says this of itself is podman.
func isPodman(version client.ServerVersionResult) bool {
	return len(version.Components) > 0 && strings.HasPrefix(version.Components[0].Name, "Podman")
}

// unreachable says why the engine does not answer.
func (e *Engine) unreachable(err error) error {
	_, serr := os.Stat(e.socket)

	switch {
	case errors.Is(serr, fs.ErrNotExist):
		return fmt.Errorf("no container engine: %s does not exist", e.socket)
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("no container engine listens on %s", e.socket)
	default:
		return fmt.Errorf("the container engine at %s fails: %w", e.socket, err)
	}
}

// readJSON reads a file if it is there.
func readJSON(path string, to any) error {
	text, err := os.ReadFile(filepath.Clean(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err == nil {
		err = json.Unmarshal(text, to)
	}

	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	return nil
}
