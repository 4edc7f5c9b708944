package runtime

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
)

// rankDirVar marks every process of a rank, so that it can be found again.
const rankDirVar = "TRAINYARD_RANK_DIR"

// SDKVar names the wheel of the Python SDK, if the agent offers one. It is on the program's PYTHONPATH too.
const SDKVar = "TRAINYARD_SDK"

// agentAddress is where the agent hears what programs measure.
const agentAddress = "127.0.0.1"

// inherited are the variables of the agent that describe the machine and that
// a program may need. Everything else of the agent's environment stays its own.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "PYENV_ROOT",
	"CONDA_EXE", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PYTHON_EXE", "MAMBA_EXE", "MAMBA_ROOT_PREFIX",
}

// inheritedPrefixes begin further variables that are passed on: locale and how
// this machine talks to the others of a run.
var inheritedPrefixes = []string{"LC_", "NCCL_", "GLOO_"}

// baseEnv picks from the agent's environment what programs get.
func baseEnv(environ []string) map[string]string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, e := range environ {
		key, value, ok := strings.Cut(e, "=")
		if !ok {
			continue
		}
		hasPrefix := func(p string) bool { return strings.HasPrefix(key, p) }
		if slices.Contains(inherited, key) || slices.ContainsFunc(inheritedPrefixes, hasPrefix) {
			env[key] = value
		}
	}
	return env
}

// environment returns the whole environment of a rank, sorted: what the machine
// gives, over it what the job asks for, over that what the yard says. So a job
// may choose its PATH, but not which GPUs it sees or who it is.
func environment(base map[string]string, s Spec, data, setupDir string) []string {
	env := maps.Clone(base)
	env["PYTHONUNBUFFERED"] = "1"
	maps.Copy(env, s.Offered)
	maps.Copy(env, s.Launch.Env)
	maps.Copy(env, yardEnv(s, data))
	maps.Copy(env, distributedEnv(s))
	if setupDir != "" {
		env["TRAINYARD_SETUP_DIR"] = setupDir
	}
	reachAgent(env)
	if sdk := env[SDKVar]; sdk != "" {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+sdk, ":")
	}
	out := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		out = append(out, key+"="+env[key])
	}
	return out
}

// reachAgent keeps what a program tells the agent on this machine from being sent to a proxy.
func reachAgent(env map[string]string) {
	has := func(name string) bool { return env[name] != "" }
	if !slices.ContainsFunc([]string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}, has) {
		return
	}
	// Of two that are set programs read one only, so that none is added beside another.
	names := slices.DeleteFunc([]string{"NO_PROXY", "no_proxy"}, func(name string) bool { return !has(name) })
	if len(names) == 0 {
		names = []string{"NO_PROXY", "no_proxy"}
	}
	for _, name := range names {
		if list := env[name]; list == "" {
			env[name] = agentAddress
		} else if list != "*" && !slices.Contains(strings.Split(list, ","), agentAddress) {
			env[name] = list + "," + agentAddress
		}
	}
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
	if goal := target(s.Launch); goal != "" {
		env["TRAINYARD_TARGET"] = goal
	}
	return env
}

// target is what the job is to reach, as JSON; empty if it says nothing.
func target(l api.Launch) string {
	if l.Target == nil {
		return ""
	}
	text, err := json.Marshal(l.Target)
	if err != nil {
		return "" // a number that JSON does not have: nothing can reach it
	}
	return string(text)
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

// distributedEnv are the names that distributed frameworks read.
func distributedEnv(s Spec) map[string]string {
	nodes := strconv.Itoa(max(1, len(s.Launch.Nodes)))
	rank := strconv.Itoa(s.Rank)
	perNode := strconv.Itoa(max(1, len(devices(s))))
	port := strconv.Itoa(s.Launch.MasterPort)
	return map[string]string{
		"NODE_RANK": rank, "RANK": rank, "WORLD_SIZE": nodes, "NNODES": nodes, "NPROC_PER_NODE": perNode,
		"MASTER_ADDR": masterAddr(s.Launch), "MASTER_PORT": port,
		"PET_NNODES": nodes, "PET_NODE_RANK": rank, "PET_NPROC_PER_NODE": perNode,
		"PET_MASTER_ADDR": masterAddr(s.Launch), "PET_MASTER_PORT": port,
	}
}

// masterAddr is where the first rank is.
func masterAddr(l api.Launch) string {
	if len(l.Nodes) == 0 || l.Nodes[0] == "" {
		return "127.0.0.1"
	}
	return l.Nodes[0]
}
