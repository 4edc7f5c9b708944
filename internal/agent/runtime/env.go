package runtime

import (
	"cmp"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/share"
	"trainyard/internal/job"
)

// SDKVar is the variable with the path of the Python SDK's wheel, if the agent offers one. The wheel is
// also on the program's PYTHONPATH.
const SDKVar = "TRAINYARD_SDK"

// environment returns the complete environment of a rank, sorted. The variables of the job override
// those of the machine, and those of the yard override both. So a job may set its PATH, but not its
// GPUs or its identity.
func environment(base map[string]string, rec *rundir.Record, data string) []string {
	s := rec.Spec
	env := maps.Clone(base)
	env["PYTHONUNBUFFERED"] = "1"

	if rec.User != nil {
		maps.Copy(env, privateEnv(rec, data, env["PATH"]))
	}

	maps.Copy(env, s.ExtraEnv)
	maps.Copy(env, s.Launch.Env)

	for _, entry := range s.Launch.Secrets { // the supervisor puts the values in
		name, _ := job.SecretName(entry)
		env[name] = rundir.SecretMark
	}

	maps.Copy(env, rankEnv(rec, data))
	maps.Copy(env, s.DistributedEnv(s.Launch.Nodes))

	if dir := rec.Setup.OutputDir(); dir != "" {
		env["TRAINYARD_SETUP_DIR"] = dir
	}

	if s.ShareLibrary != "" {
		env[share.Variable] = filepath.Join(data, rundir.RunsDir, s.Name(), rundir.ShareDir)
	}

	if s.ShareLibrary != "" && s.Launch.Image == "" { // in containers a file names it
		env["LD_PRELOAD"] = strings.TrimSuffix(s.ShareLibrary+":"+env["LD_PRELOAD"], ":")
	}

	if s.MPS != "" {
		part := cmp.Or(s.Launch.ShareLimit, s.Launch.Share)
		env["CUDA_MPS_PIPE_DIRECTORY"] = s.MPS
		env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = strconv.Itoa(int(math.Round(part * 100)))
	}

	bypassProxy(env)

	if sdk := env[SDKVar]; sdk != "" {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+sdk, ":")
	}

	out := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		out = append(out, key+"="+env[key])
	}

	return out
}

// rankEnv returns the variables that tell a program its rank, its GPUs and where to report its
// progress.
func rankEnv(rec *rundir.Record, data string) map[string]string {
	s := rec.Spec
	dir := filepath.Join(data, rundir.RunsDir, s.Name())
	gpus := strings.Join(s.DeviceNames(), ",")
	share := ""
	if s.Launch.Share > 0 {
		share = strconv.FormatFloat(s.Launch.Share, 'g', -1, 64)
	}

	env := map[string]string{
		"TRAINYARD_JOB_ID":         string(s.Job),
		"TRAINYARD_JOB_NAME":       s.Launch.Name,
		"TRAINYARD_RUN":            string(s.Run),
		"TRAINYARD_EPOCH":          strconv.Itoa(s.Epoch),
		"TRAINYARD_CHECKPOINT_DIR": s.Checkpoints(data),
		"TRAINYARD_GPU_SHARE":      share, // empty for whole GPUs
		progressVar:                rec.Report(dir, rundir.ProgressFile),
		"TRAINYARD_METRICS_FILE":   rec.Report(dir, rundir.MetricsFile),
		"TRAINYARD_GRACE":          strconv.FormatFloat(time.Duration(s.Launch.Grace).Seconds(), 'f', -1, 64),
		rundir.RankDirVar:          rec.Requests(dir),
		// Empty, not absent, for a rank without GPUs: absent would mean all GPUs.
		"CUDA_VISIBLE_DEVICES":   gpus,
		"NVIDIA_VISIBLE_DEVICES": gpus,
	}

	if every := time.Duration(s.Launch.SaveEvery); every > 0 {
		env["TRAINYARD_CHECKPOINT_EVERY"] = strconv.FormatFloat(every.Seconds(), 'f', -1, 64)
	}

	if hosts := rec.HostFilePath(dir); hosts != "" {
		env["TRAINYARD_HOSTFILE"] = hosts
	}

	if input := rec.InputPath(dir); input != "" {
		env[rundir.InputVar] = input
	}

	if goal := targetJSON(s.Launch.Target); goal != "" {
		env["TRAINYARD_TARGET"] = goal
	}

	return env
}
