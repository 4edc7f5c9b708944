package runtime

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/agent/runtime/environ"
)

// rankDirVar marks every process of a rank, so that it can be found again.
const rankDirVar = "TRAINYARD_RANK_DIR"

// SDKVar names the wheel of the Python SDK, if the agent offers one. It is on the program's PYTHONPATH too.
const SDKVar = "TRAINYARD_SDK"

// environment returns the whole environment of a rank, sorted: what the machine
// gives, over it what the job asks for, over that what the yard says. So a job
// may choose its PATH, but not which GPUs it sees or who it is.
func environment(base map[string]string, s Spec, data, setupDir string) []string {
	env := maps.Clone(base)
	env["PYTHONUNBUFFERED"] = "1"
	maps.Copy(env, s.Offered)
	maps.Copy(env, s.Launch.Env)
	maps.Copy(env, yardEnv(s, data))
	maps.Copy(env, environ.Distributed(s.Rank, max(1, len(devices(s))), s.Launch.Nodes, s.Launch.MasterPort))
	if setupDir != "" {
		env["TRAINYARD_SETUP_DIR"] = setupDir
	}
	environ.Reach(env)
	if sdk := env[SDKVar]; sdk != "" {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+sdk, ":")
	}
	out := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		out = append(out, key+"="+env[key])
	}
	return out
}

// yardEnv says who the rank is, which GPUs it has and where it may tell how it fares.
func yardEnv(s Spec, data string) map[string]string {
	gpus := strings.Join(devices(s), ",")
	share := ""
	if s.Launch.Share > 0 {
		share = strconv.FormatFloat(s.Launch.Share, 'g', -1, 64)
	}
	env := map[string]string{
		"TRAINYARD_JOB_ID":         string(s.Job),
		"TRAINYARD_JOB_NAME":       s.Launch.Name,
		"TRAINYARD_RUN":            string(s.Run),
		"TRAINYARD_EPOCH":          strconv.Itoa(s.Epoch),
		"TRAINYARD_CHECKPOINT_DIR": filepath.Join(data, checkpointsDir, string(s.Job)),
		"TRAINYARD_GPU_SHARE":      share, // empty for whole GPUs
		progressVar:                filepath.Join(data, runsDir, s.name(), progressFile),
		"TRAINYARD_METRICS_FILE":   filepath.Join(data, runsDir, s.name(), metricsFile),
		"TRAINYARD_GRACE":          strconv.FormatFloat(time.Duration(s.Launch.Grace).Seconds(), 'f', -1, 64),
		rankDirVar:                 filepath.Join(data, runsDir, s.name()),
		// Empty, not absent, for a rank without GPUs: absent would mean all of them.
		"CUDA_VISIBLE_DEVICES":   gpus,
		"NVIDIA_VISIBLE_DEVICES": gpus,
	}
	if goal := environ.Target(s.Launch.Target); goal != "" {
		env["TRAINYARD_TARGET"] = goal
	}
	return env
}

// devices names the GPUs of a rank as its program is told them.
func devices(s Spec) []string {
	if len(s.Devices) > 0 {
		return s.Devices
	}
	names := make([]string, len(s.Launch.GPUs))
	for i, index := range s.Launch.GPUs {
		names[i] = strconv.Itoa(index)
	}
	return names
}
