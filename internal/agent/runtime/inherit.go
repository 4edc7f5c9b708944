package runtime

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/job"
)

// agentAddress is the address of the agent's metrics endpoint.
const agentAddress = "127.0.0.1"

// inherited lists the variables of the agent that describe the machine and that a program may need.
// Programs get nothing else of the agent's environment.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "PYENV_ROOT",
	"CONDA_EXE", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PYTHON_EXE", "MAMBA_EXE", "MAMBA_ROOT_PREFIX",
}

// inheritedPrefixes are the prefixes of further inherited variables: locale, and the network
// settings of collective communication.
var inheritedPrefixes = []string{"LC_", "NCCL_", "GLOO_"}

// inheritedEnv selects the variables of the agent's environment that programs inherit.
func inheritedEnv(environ []string) map[string]string {
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

// bypassProxy exempts the agent's metrics endpoint from the HTTP proxy.
func bypassProxy(env map[string]string) {
	has := func(name string) bool { return env[name] != "" }
	if !slices.ContainsFunc([]string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}, has) {
		return
	}

	// Programs read only one of the two spellings, so a missing one is not added beside one that is
	// set.
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

// distributedEnv returns the variables that distributed frameworks read. nodes are addresses in rank order;
// the first is the rendezvous.
func distributedEnv(rank, perNode int, nodes []string, port int) map[string]string {
	first := "127.0.0.1"
	if len(nodes) > 0 && nodes[0] != "" {
		first = nodes[0]
	}

	n := strconv.Itoa(rank)
	count := strconv.Itoa(max(1, len(nodes)))
	each := strconv.Itoa(perNode)
	at := strconv.Itoa(port)

	return map[string]string{
		"NODE_RANK": n, "RANK": n, "WORLD_SIZE": count, "NNODES": count, "NPROC_PER_NODE": each,
		"MASTER_ADDR": first, "MASTER_PORT": at,
		"PET_NNODES": count, "PET_NODE_RANK": n, "PET_NPROC_PER_NODE": each,
		"PET_MASTER_ADDR": first, "PET_MASTER_PORT": at,
	}
}

// targetJSON is the target of a job as JSON; empty if it has none.
func targetJSON(t *job.Target) string {
	if t == nil {
		return ""
	}

	text, err := json.Marshal(t)
	if err != nil {
		return "" // NaN or infinite: no metric can reach it
	}

	return string(text)
}
