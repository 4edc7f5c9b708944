package main

import (
	"fmt"
	"path/filepath"
	"time"

	"trainyard/internal/agent"
	"trainyard/internal/agent/container"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// containerSettings are those of an agent about jobs with an image.
var containerSettings = []setting{
	{
		"container-socket",
		container.Auto,
		"socket of the container engine for jobs with an image, podman or Docker, running as root: a path, auto (the first " +
			"of /run/podman/podman.sock and /run/docker.sock that is there) or none (run no containers)",
		text(func(c *config) *string { return &c.containerSocket }),
	},
	{
		"container-network",
		container.OwnNetwork,
		"network of containers: own (one for each, behind the engine's bridge) or host (that of this node, which jobs with " +
			"an image on several nodes need)",
		func(c *config, v string) error {
			c.containerNetwork = v

			if v != container.OwnNetwork && v != container.HostNetwork {
				return fmt.Errorf("must be own or host, got %q", v)
			}

			return nil
		},
	},
	{
		"registry-auth",
		"",
		"file with credentials for registries of container images, as docker login and podman login write it (default: none)",
		text(func(c *config) *string { return &c.registryAuth }),
	},
	{
		"image-age",
		"30d",
		"how long a pulled image is kept that no run uses",
		length(func(c *config) *time.Duration { return &c.imageAge }, time.Minute),
	},
	{
		"max-images",
		"200GB",
		"how much room pulled images may take; those that were used least recently are removed first",
		size(func(c *config) *int64 { return &c.maxImages }),
	},
}

// containers opens the container engine of an agent. An agent that does not wall off users has none.
func (c *config) containers(dir string, isolated bool, clk clock.Clock) (
	agent.ContainerEngine, runtime.Containers, error,
) {
	switch {
	case c.containerSocket == container.None:
		return agent.NoContainers("the agent was started with --container-socket none"), nil, nil
	case !isolated:
		return agent.NoContainers("its agent does not isolate users: run it as root, with --isolation users"), nil, nil
	}

	engine, err := container.Open(container.Options{
		Dir: filepath.Clean(dir), Socket: c.containerSocket, Network: c.containerNetwork, Auth: c.registryAuth,
		MaxImages: job.Bytes(c.maxImages), ImageAge: c.imageAge, Clock: clk,
	})
	if err != nil {
		return nil, nil, err
	}

	return engine, engine, nil
}
