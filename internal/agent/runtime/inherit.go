package runtime

import (
	"encoding/json"
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// agentAddress is the address of the agent's metrics endpoint.
const agentAddress = "127.0.0.1"

// Programs inherit what describes the machine and nothing else of the agent's environment. basics is what every
// program has; settings are those of the machine that its administrator has made and that programs may need: libraries,
// certificates, the network of collective communication, MPI, modules. One that ends with * stands for all that
// begin so. An operator adds to them with Options.PassEnv.
var (
	basics = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR",
	}
	settings = []string{
		"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CUDA_*", "CUDNN_*", "ROCM_*", "HIP_*", "NVIDIA_*",
		"NCCL_*", "RCCL_*", "GLOO_*", "UCX_*", "UCC_*", "FI_*", "OMPI_*", "PMIX_*", "PRTE_*", "OPAL_*", "I_MPI_*", "HPCX_*",
		"MODULEPATH", "MODULESHOME", "MODULES_*", "LMOD_*", "LOADEDMODULES", "_LMFILES_",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
		"PYENV_ROOT", "CONDA_EXE", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PYTHON_EXE", "MAMBA_EXE", "MAMBA_ROOT_PREFIX",
	}
	// processOnly describe one process that MPI or its launcher has started, such as an agent that was started
	// by them. A program that took them for its own would wait for a launcher that does not know it.
	processOnly = []string{
		"OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_APP_CTX_NUM_PROCS", "OMPI_FIRST_RANKS", "OMPI_NUM_APP_CTX",
		"OMPI_FILE_LOCATION", "OMPI_COMMAND", "OMPI_ARGV", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_ID", "PMIX_SERVER_*",
		"PMIX_HOSTNAME", "PMIX_DSTORE_*", "PMIX_BFROP_*", "PMIX_GDS_*", "PMIX_SECURITY_*", "PMIX_SYSTEM_*", "PMIX_VERSION",
		"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
	}
)

// agentPrefix is that of the variables that configure the agent, among them its tokens. No setting passes them on.
const agentPrefix = "TRAINYARD_"

// CheckPassEnv refuses names that cannot be passed on to programs.
func CheckPassEnv(names []string) error {
	for _, name := range names {
		plain := strings.TrimSuffix(name, "*")
		switch {
		case plain == "" || strings.ContainsAny(plain, "=* \t"):
			return fault.New(fault.Invalid, "bad_pass_env", "must be names of variables, got %q", name).
				WithRemedy("write them as in OMPI_MCA_btl,MYLIB_*")
		case strings.HasPrefix(plain, agentPrefix):
			return fault.New(fault.Invalid, "bad_pass_env", "must not name variables of the agent, got %q", name).
				WithRemedy("remove it: they may hold the agent's own tokens")
		}
	}

	return nil
}

// matches reports whether a name is in a list, by itself or by how it begins.
func matches(list []string, name string) (listed, byPrefix bool) {
	for _, entry := range list {
		prefix, open := strings.CutSuffix(entry, "*")
		switch {
		case !open && entry == name:
			return true, false
		case open && strings.HasPrefix(name, prefix):
			byPrefix = true
		}
	}

	return byPrefix, byPrefix
}

// secretWords are parts of the names of variables that hold secrets. Such a variable is passed on only if the operator
// names it as a whole.
var secretWords = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "APIKEY", "API_KEY",
	"ACCESS_KEY", "PRIVATE"}

// passes reports whether a variable of the agent's environment is passed on to programs.
func passes(name string, more []string) bool {
	if strings.HasPrefix(name, agentPrefix) {
		return false
	}

	if listed, byPrefix := matches(more, name); listed && !byPrefix {
		return true
	}
	if listed, _ := matches(processOnly, name); listed {
		return false
	}

	for _, list := range [][]string{basics, settings, more} {
		listed, byPrefix := matches(list, name)
		secret := byPrefix && slices.ContainsFunc(secretWords, func(word string) bool {
			return strings.Contains(strings.ToUpper(name), word)
		})

		if listed && !secret {
			return true
		}
	}

	return false
}

// inheritedEnv selects the variables of the agent's environment that programs inherit; more are those that the operator
// adds.
func inheritedEnv(environ, more []string) map[string]string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, e := range environ {
		if key, value, ok := strings.Cut(e, "="); ok && passes(key, more) {
			env[key] = withoutCredentials(key, value)
		}
	}

	return env
}

// withoutCredentials takes user and password out of the address of a proxy: they are those of the machine, not of its
// users. Whoever needs them sets the variable in the job file, from a secret.
func withoutCredentials(key, value string) string {
	if !strings.HasSuffix(strings.ToLower(key), "_proxy") || strings.EqualFold(key, "no_proxy") {
		return value
	}

	scheme, rest, found := strings.Cut(value, "://")
	if !found {
		scheme, rest = "", value
	} else {
		scheme += "://"
	}

	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}

	if slash {
		authority += "/" + path
	}

	return scheme + authority
}

// passedNames lists the settings of the machine that a program has from it: not what every program has, and not
// what its job sets itself.
func passedNames(base, own map[string]string) string {
	var names []string
	for name := range base {
		basic, _ := matches(basics, name)
		if _, set := own[name]; !basic && !set {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	const limit = 4000

	text := strings.Join(names, " ")
	if len(text) > limit {
		text = text[:strings.LastIndexByte(text[:limit], ' ')]
	}

	return text
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
