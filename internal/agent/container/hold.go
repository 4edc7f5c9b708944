package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	containerapi "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/executable"
)

// agentLabel marks the containers of an agent with its data directory, rankLabel those of a rank with its name, and
// processLabel those that one process of the agent has made.
const (
	agentLabel   = "trainyard.agent"
	rankLabel    = "trainyard.rank"
	processLabel = "trainyard.process"
)

// Request says which container is wanted.
type Request struct {
	Agent string // the data directory of the agent
	Rank  string // its name
	Dir   string // for the process of the container, with the pipe that holds it; see package rundir
	Image Image
	GPUs  []string // by UUID
}

// Hold starts a container that ends when the pipe in its directory has no writer any more. The engine removes it then.
func (e *Engine) Hold(ctx context.Context, r Request) (c rundir.Container, err error) {
	program, err := holder(filepath.Join(sandbox.HolderDir, rundir.HolderPipe))
	if err != nil {
		return c, err
	}

	if err := executable.Write(filepath.Join(r.Dir, rundir.HolderProgram), program, 0o755); err != nil {
		return c, fmt.Errorf("make a container: %w", err)
	}

	made, err := e.cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &containerapi.Config{
			Image: r.Image.ID, User: "0:0", WorkingDir: "/", StopSignal: "SIGKILL",
			Entrypoint:  []string{filepath.Join(sandbox.HolderDir, rundir.HolderProgram)},
			Cmd:         []string{},
			Healthcheck: &containerapi.HealthConfig{Test: []string{"NONE"}},
			Labels:      map[string]string{agentLabel: r.Agent, rankLabel: r.Rank, processLabel: e.process},
		},
		HostConfig: &containerapi.HostConfig{
			AutoRemove: true, NetworkMode: e.network(), CapDrop: []string{"ALL"},
			Binds:       []string{r.Dir + ":" + sandbox.HolderDir + ":ro"},
			SecurityOpt: []string{"no-new-privileges", "label=disable"},
			LogConfig:   containerapi.LogConfig{Type: "none"},
			Resources:   containerapi.Resources{DeviceRequests: e.devices(ctx, r.GPUs)},
		},
	})
	if err != nil {
		return c, fmt.Errorf("make a container: %w", e.failure(err))
	}

	c.ID, c.Digest, c.OwnNetwork = made.ID, r.Image.Digest, e.opt.Network != HostNetwork

	defer func() {
		if err != nil {
			err = errors.Join(err, e.remove(context.WithoutCancel(ctx), made.ID))
		}
	}()

	if _, err := e.cli.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		if len(r.GPUs) > 0 && strings.Contains(err.Error(), noDriver) {
			return c, sandbox.Invisible(r.GPUs[0])
		}

		return c, fmt.Errorf("start a container: %w", e.failure(err))
	}

	found, err := e.cli.ContainerInspect(ctx, made.ID, client.ContainerInspectOptions{})
	if err != nil {
		return c, fmt.Errorf("start a container: %w", e.failure(err))
	}

	if s := found.Container.State; s != nil {
		c.PID = s.Pid
	}

	p, ok := process.Read(c.PID)
	if c.PID == 0 || !ok {
		return c, errors.New("start a container: it has ended at once")
	}

	c.Started = p.Started

	return c, nil
}

// noDriver is what Docker says if it has neither the NVIDIA runtime nor CDI.
const noDriver = "could not select device driver"

// failure returns why a call of the engine failed.
func (e *Engine) failure(err error) error {
	if client.IsErrConnectionFailed(err) {
		return e.unreachable(err)
	}

	return err
}

// network returns which network containers get, in the words of the engine.
func (e *Engine) network() containerapi.NetworkMode {
	if e.opt.Network == HostNetwork {
		return "host"
	}

	return "bridge"
}

// devices asks for GPUs: from the NVIDIA runtime where the engine has it, else as devices of the CDI, which the engine
// finds in the files that nvidia-ctk writes.
func (e *Engine) devices(ctx context.Context, uuids []string) []containerapi.DeviceRequest {
	if len(uuids) == 0 {
		return nil
	}

	if info, err := e.cli.Info(ctx, client.InfoOptions{}); err == nil {
		if _, ok := info.Info.Runtimes["nvidia"]; ok {
			return []containerapi.DeviceRequest{{Driver: "nvidia", DeviceIDs: uuids, Capabilities: [][]string{{"gpu"}}}}
		}
	}

	names := make([]string, len(uuids))
	for i, uuid := range uuids {
		names[i] = "nvidia.com/gpu=" + uuid
	}

	return []containerapi.DeviceRequest{{Driver: "cdi", DeviceIDs: names}}
}

// remove removes a container, also one that runs.
func (e *Engine) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()

	_, err := e.cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}

	return nil
}

// Sweep removes containers of an agent whose ranks are not there any more, and those that an earlier process of the
// agent has made and did not live to start. Others end by themselves; an engine that was killed at the wrong moment
// leaves what is left of them.
func (e *Engine) Sweep(ctx context.Context, agent string, live func(rank string) bool) error {
	list, err := e.cli.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", agentLabel+"="+agent),
	})
	if err != nil {
		return fmt.Errorf("list containers: %w", e.failure(err))
	}

	var errs []error
	for _, c := range list.Items {
		if c.Labels[agentLabel] != agent {
			continue
		}

		if !live(c.Labels[rankLabel]) || neverStarted(c.State) && c.Labels[processLabel] != e.process {
			errs = append(errs, e.remove(ctx, c.ID))
		}
	}

	return errors.Join(errs...)
}

// neverStarted reports whether a container is in a state that it has before it is started: the first is that of both
// engines, the others are podman's.
func neverStarted(s containerapi.ContainerState) bool {
	return s == containerapi.StateCreated || s == "configured" || s == "initialized"
}
