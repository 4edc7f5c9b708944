package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"trainyard/internal/agent/sandbox"
	"trainyard/internal/cli"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/contact"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/retention"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/tenant"
)

// setting is one thing an operator can set. Each can be given as a flag, as an
// environment variable and as a key of the configuration file; a flag wins over
// a variable, a variable over the file, the file over the default.
type setting struct {
	name     string // of the flag and of the key: "lost-after" is lost_after in the file
	standard string // the default, as written
	help     string
	set      func(c *config, value string) error
}

// key is the setting's name in the configuration file.
func (s *setting) key() string { return strings.ReplaceAll(s.name, "-", "_") }

// variable is the setting's environment variable.
func (s *setting) variable() string { return "TRAINYARD_" + strings.ToUpper(s.key()) }

// config is the configuration of server and agent.
type config struct {
	single       bool // server and agent are one process, of one person
	demo         bool // the yard is simulated; not a setting
	data         string
	dataGiven    bool // it is not the folder of the user that is used otherwise
	listen       string
	hosts        []string
	advertise    string
	store        string
	blobs        string
	s3Endpoint   string
	s3PathStyle  bool
	s3Direct     bool
	leaderLease  time.Duration
	timeouts     sqlstore.Timeouts
	suspectAfter time.Duration
	lostAfter    time.Duration
	reportEvery  time.Duration
	contactLease time.Duration
	contactGrace time.Duration
	backoff      time.Duration
	askFor       time.Duration
	saveWait     time.Duration
	sharedFS     fleet.SharedFolders
	keepFinal    time.Duration
	limits       retention.Limits
	maxJobs      int
	caps         tenant.Caps
	logLimit     int64
	jobText      int64
	allJobText   int64
	maxUploads   int
	maxUploaded  int64
	allUploaded  int64
	maxStreams   int
	diskReserve  int64
	rate         float64
	burst        int
	maxFile      int64
	policy       string
	tariff       string
	clouds       string
	refuse       bool
	byUser       bool
	roundLimit   time.Duration
	logLevel     slog.Level
	logFormat    string

	storePasswordFile, metricsListen string

	notifyHosts                      []string
	smtp, smtpFrom, smtpPasswordFile string

	server                               string
	token, tokenFile                     string
	name                                 string
	address, topology                    string
	labels                               []string
	fakeGPUs                             string
	gpuBypass                            string
	metrics                              string
	probe, probePython, criu, onLeaseEnd string
	spotNotice                           string
	cpus                                 job.CPUs
	memory                               job.Bytes
	minFree                              diskspace.Floor
	mixUsers                             bool
	personal                             bool // jobs run under the account of whoever started the yard; not a setting
	isolation                            string
	jobUIDs                              sandbox.Users
	jobAccounts                          bool
	maxPIDs                              int
	maxDisk                              int64
	maxKept                              int64
	keepRuns                             time.Duration
	dataRoots, dataHosts                 []string
	passEnv                              []string
	containerSocket, containerNetwork    string
	registryAuth                         string
	imageAge                             time.Duration
	maxImages                            int64
}

func text(target func(c *config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		*target(c) = v
		return nil
	}
}

func length(target func(c *config) *time.Duration, minimum time.Duration) func(*config, string) error {
	return func(c *config, v string) error {
		d, err := job.ParseDuration(v)
		if err == nil && time.Duration(d) < minimum {
			err = fmt.Errorf("must be at least %s", job.Duration(minimum))
		}

		*target(c) = time.Duration(d)

		return err
	}
}

func yesNo(target func(c *config) *bool) func(*config, string) error {
	return func(c *config, v string) error {
		*target(c) = v == "yes"

		if v != "yes" && v != "no" {
			return fmt.Errorf("must be yes or no, got %q", v)
		}

		return nil
	}
}

func number(target func(c *config) *int) func(*config, string) error {
	return func(c *config, v string) (err error) {
		*target(c), err = strconv.Atoi(v)
		if err != nil || *target(c) < 0 {
			err = fmt.Errorf("must be an integer of at least 0, got %q", v)
		}

		return err
	}
}

func size(target func(c *config) *int64) func(*config, string) error {
	return func(c *config, v string) error {
		b, err := job.ParseBytes(v)
		*target(c) = int64(b)
		return err
	}
}

// sharedFolders reads the shared file systems that an operator declares.
func sharedFolders(text string) (fleet.SharedFolders, error) {
	var list fleet.SharedFolders

	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}

		name, place, ok := strings.Cut(part, "=")
		path, pool, pooled := strings.Cut(place, "@")
		f := fleet.SharedFolder{Name: name, Path: path, Pool: pool}

		switch {
		case !ok || !id.Name(name) || !filepath.IsAbs(path) || filepath.Clean(path) != path || pooled && !id.Name(pool):
			return nil, fmt.Errorf("must be NAME=PATH or NAME=PATH@POOL with an absolute path, got %q", part)
		case slices.ContainsFunc(list, func(o fleet.SharedFolder) bool { return o.Name == f.Name && o.Pool == f.Pool }):
			return nil, fmt.Errorf("%q is declared twice for the same nodes", name)
		}

		list = append(list, f)
	}

	return list, nil
}

// dataSetting is shared by server and agent.
var dataSetting = setting{
	"data",
	"",
	"data directory (default: trainyard in the user's data directory)",
	text(func(c *config) *string { return &c.data }),
}

// logSettings are shared by server and agent.
var logSettings = []setting{
	{
		"log-level",
		"info",
		"log level: debug, info, warn or error",
		func(c *config, v string) error { return c.logLevel.UnmarshalText([]byte(v)) },
	},
	{"log-format", "text", "log format: text or json", func(c *config, v string) error {
		c.logFormat = v

		if v != "text" && v != "json" {
			return fmt.Errorf("must be text or json, got %q", v)
		}

		return nil
	}},
}

// serverSettings are those of a server.
var serverSettings = slices.Concat(mainSettings, notifySettings, limitSettings)

// mainSettings are those of a server that limit nothing.
var mainSettings = []setting{
	{"listen", "127.0.0.1:7443", "address to listen on", text(func(c *config) *string { return &c.listen })},
	{
		"hosts",
		"",
		"additional host names and addresses of the server, separated by commas",
		list(func(c *config) *[]string { return &c.hosts }),
	},
	{
		"store",
		"",
		"database: a file for SQLite (default: yard.db in the data directory) or postgres://…",
		text(func(c *config) *string { return &c.store }),
	},
	{
		"store-password-file",
		"",
		"file with the password of the database, so that it is not in --store, which everybody on this machine can see",
		text(func(c *config) *string { return &c.storePasswordFile }),
	},
	{
		"blobs",
		"",
		"where to keep working directories, output of ended runs and checkpoints: a folder (default: blobs in the data " +
			"directory) or s3://BUCKET/PREFIX",
		text(func(c *config) *string { return &c.blobs }),
	},
	{
		"s3-endpoint",
		"",
		"URL of an S3 server other than Amazon's, e.g. https://minio.example.org; for --blobs s3://…",
		text(func(c *config) *string { return &c.s3Endpoint }),
	},
	{
		"s3-path-style",
		"no",
		"put the bucket in the path of URLs instead of the host name, as most S3 servers other than Amazon's need: yes or no",
		yesNo(func(c *config) *bool { return &c.s3PathStyle }),
	},
	{
		"s3-direct",
		"yes",
		"let agents upload and download checkpoints directly, with signed URLs: yes or no; no if they cannot reach the " +
			"S3 server",
		yesNo(func(c *config) *bool { return &c.s3Direct }),
	},
	{
		"advertise",
		"",
		"URL under which other servers, agents and users reach this server (default: from --hosts or --listen)",
		func(c *config, v string) (err error) {
			c.advertise = v
			if v != "" {
				c.advertise, err = contexts.ServerURL(v)
			}

			return err
		},
	},
	{
		"leader-lease",
		"4s",
		"time after which another server leads if the leader does not answer; PostgreSQL only",
		length(func(c *config) *time.Duration { return &c.leaderLease }, time.Second),
	},
	{
		"commit-timeout",
		"5s",
		"time limit of a commit to the database, after which it is tried again",
		length(func(c *config) *time.Duration { return &c.timeouts.Commit }, time.Second),
	},
	{
		"read-timeout",
		"10s",
		"time limit of a query to the database",
		length(func(c *config) *time.Duration { return &c.timeouts.Read }, time.Second),
	},
	{
		"policy",
		"rules",
		"placement policy; list them with trainyard simulate --list-policies",
		text(func(c *config) *string { return &c.policy }),
	},
	{
		"tariff",
		"",
		"file with the cost of nodes: energy and hourly price by GPU model (default: none; policies count GPU-hours)",
		text(func(c *config) *string { return &c.tariff }),
	},
	{
		"clouds",
		"",
		"file with the cloud providers and when to provision nodes (default: none)",
		text(func(c *config) *string { return &c.clouds }),
	},
	{
		"refuse-impossible",
		"yes",
		"refuse jobs that no node and no offer could ever run: yes or no",
		yesNo(func(c *config) *bool { return &c.refuse }),
	},
	{
		"metrics-by-user",
		"no",
		"include cost and GPU time per user in /metrics: yes or no",
		yesNo(func(c *config) *bool { return &c.byUser }),
	},
	{
		"round-limit",
		"50ms",
		"time limit of a planning round, for policies that search",
		length(func(c *config) *time.Duration { return &c.roundLimit }, time.Millisecond),
	},
	{
		"report-every",
		"5s",
		"how often agents report",
		length(func(c *config) *time.Duration { return &c.reportEvery }, 10*time.Millisecond),
	},
	{
		"suspect-after",
		"30s",
		"time without contact after which a node gets no new jobs",
		length(func(c *config) *time.Duration { return &c.suspectAfter }, 100*time.Millisecond),
	},
	{
		"lost-after",
		"5m",
		"time without contact after which a node is lost and its jobs restart elsewhere",
		length(func(c *config) *time.Duration { return &c.lostAfter }, time.Second),
	},
	{
		"contact-lease",
		"0s",
		"time without contact after which an agent stops its jobs; 0s for four fifths of lost-after",
		length(func(c *config) *time.Duration { return &c.contactLease }, 0),
	},
	{
		"contact-grace",
		"0s",
		"time that jobs have to exit when the contact lease has expired; 0s for a tenth of lost-after",
		length(func(c *config) *time.Duration { return &c.contactGrace }, 0),
	},
	{
		"retry-wait",
		"5s",
		"wait before a failed job is retried; doubles each time",
		length(func(c *config) *time.Duration { return &c.backoff }, 0),
	},
	{
		"ask-for",
		"24h",
		"how long a failed job is held for its owner to decide what follows; 0s to let it fail at once",
		length(func(c *config) *time.Duration { return &c.askFor }, 0),
	},
	{
		"save-wait",
		"10m",
		"how long a move waits for the job to save a checkpoint before it is abandoned",
		length(func(c *config) *time.Duration { return &c.saveWait }, time.Second),
	},
	{
		"shared-fs",
		"",
		"shared file systems on which nodes keep checkpoints, as NAME=PATH or, for the nodes of one pool, NAME=PATH@POOL, " +
			"separated by commas",
		func(c *config, v string) (err error) {
			c.sharedFS, err = sharedFolders(v)
			return err
		},
	},
	{
		"keep-final",
		"10m",
		"how long ended jobs stay in memory",
		length(func(c *config) *time.Duration { return &c.keepFinal }, time.Second),
	},
}

// agentSettings are those of an agent.
var agentSettings = append(append([]setting{
	{"name", "", "name of the node (default: the host's name)", text(func(c *config) *string { return &c.name })},
	{
		"address",
		"",
		"address at which other nodes reach this one, or the network that has it, e.g. 10.1.0.0/16 (default: found by " +
			"probes between the nodes)",
		text(func(c *config) *string { return &c.address }),
	},
	{
		"topology",
		"",
		"where this machine is, from the outside in, e.g. hall-2/rack-7/switch-1; jobs on several nodes get nodes that are " +
			"near each other first (default: unknown)",
		func(c *config, v string) error {
			c.topology = v
			return fleet.CheckTopology(v)
		},
	},
	labelsSetting,
	{
		"fake-gpus",
		"",
		"report fake GPUs, for evaluation and tests, e.g. 8xA100:80GB; none to report no GPUs",
		text(func(c *config) *string { return &c.fakeGPUs }),
	},
	{
		"cpus",
		"",
		"report this many CPUs, for evaluation and tests (default: detected)",
		func(c *config, v string) (err error) {
			if v != "" {
				c.cpus, err = job.ParseCPUs(v)
			}

			return err
		},
	},
	{
		"memory",
		"",
		"report this much memory, for evaluation and tests, e.g. 64GB (default: detected)",
		func(c *config, v string) (err error) {
			if v != "" {
				c.memory, err = job.ParseBytes(v)
			}

			return err
		},
	},
	minFreeSetting,
	dataRootsSetting,
	dataHostsSetting,
	passEnvSetting,
	{
		"on-lease-end",
		"",
		"command that shuts this machine down when its lease expires, if it was provisioned; exit if ending the agent is " +
			"enough",
		text(func(c *config) *string { return &c.onLeaseEnd }),
	},
	{
		"spot-notice",
		"",
		"where the cloud gives notice that it reclaims this spot instance: aws, gcp, azure or file=PATH (default: none)",
		text(func(c *config) *string { return &c.spotNotice }),
	},
	{
		"gpu-bypass",
		"warn",
		"what to do about jobs that use a shared GPU without the library that keeps their share: warn or evict",
		text(func(c *config) *string { return &c.gpuBypass }),
	},
	{
		"probe",
		"auto",
		"measure GPUs with PyTorch when the agent starts: auto or off",
		text(func(c *config) *string { return &c.probe }),
	},
	{
		"probe-python",
		"",
		"Python interpreter with PyTorch (default: python3)",
		text(func(c *config) *string { return &c.probePython }),
	},
	{
		"criu",
		"",
		"CRIU 4.0 or newer, which saves programs as snapshots (default: criu)",
		text(func(c *config) *string { return &c.criu }),
	},
	{
		"mix-users",
		"no",
		"run jobs of several users at a time although nothing isolates them from each other here: yes or no; with no the " +
			"node is dedicated to one user until their jobs have ended",
		yesNo(func(c *config) *bool { return &c.mixUsers }),
	},
	{
		"metrics",
		"",
		"address to serve the agent's Prometheus metrics on, e.g. 127.0.0.1:9100 (default: not served)",
		text(func(c *config) *string { return &c.metrics }),
	},
}, isolationSettings...), containerSettings...)

// register adds the flags of the settings to a command.
func register(cmd *cobra.Command, settings []setting) {
	cmd.Flags().String("config", "", "configuration file (YAML); flags and TRAINYARD_ variables take precedence")

	for _, s := range settings {
		cmd.Flags().String(s.name, s.standard, s.help)
	}
}

// readConfig puts the configuration together and reports all mistakes at once.
func readConfig(cmd *cobra.Command, env cli.Env, settings []setting) (*config, error) {
	file, path, err := readFile(cmd, env, settings)
	if err != nil {
		return nil, err
	}

	c := &config{}
	var faults fault.List

	for _, s := range settings {
		value, origin := s.standard, "default"
		if v, ok := file[s.key()]; ok {
			value, origin = v, "key "+s.key()+" in "+path
		}

		if v, ok := env.LookupEnv(s.variable()); ok {
			value, origin = v, s.variable()
		}

		if f := cmd.Flags().Lookup(s.name); f.Changed {
			value, origin = f.Value.String(), "--"+s.name
		}

		if err := s.set(c, value); err != nil {
			faults = append(faults, fault.New(fault.Invalid, "bad_setting", "%v", err).WithField(origin))
		}
	}

	faults = append(faults, c.contact().Conflicts()...)

	if l := c.limits; l.Unused == 0 && (l.Workdirs > 0 || l.Checkpoints > 0 || l.Bytes > 0 || l.Files > 0) {
		faults = append(faults, fault.New(fault.Invalid, "keeps_unused",
			"have no effect with --keep-unused 0s, which keeps their blobs for ever").
			WithField("--keep-workdirs, --keep-checkpoints, --max-checkpoints, --keep-output-files"))
	}

	c.dataGiven = c.data != ""
	if !c.dataGiven {
		c.data, err = dataFolder(env)
		if err != nil {
			return nil, err
		}
	}

	return c, faults.OrNil()
}

// contact returns the times of contact leases.
func (c *config) contact() contact.Settings {
	return contact.NewSettings(c.reportEvery, c.suspectAfter, c.lostAfter, c.contactLease, c.contactGrace)
}

// readFile reads the configuration file, if one is named.
func readFile(cmd *cobra.Command, env cli.Env, settings []setting) (map[string]string, string, error) {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, "", err
	}

	if v, ok := env.LookupEnv("TRAINYARD_CONFIG"); ok && path == "" {
		path = v
	}

	if path == "" {
		return nil, "", nil
	}

	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, path, fault.New(fault.Invalid, "config_missing", "cannot read the configuration file: %v", err).
			WithField("--config")
	}

	values := map[string]string{}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return nil, path, fault.New(fault.Invalid, "config_invalid", "%s must be a list of keys and values: %v", path, err).
			WithField("--config")
	}

	known := map[string]bool{}
	for _, s := range settings {
		known[s.key()] = true
	}

	var faults fault.List
	for k := range values {
		if !known[k] {
			faults = append(faults, fault.New(fault.Invalid, "unknown_key", "there is no setting %q", k).WithField(path).
				WithRemedy("see trainyard %s --help; keys are the flags with _ for -", cmd.Name()))
		}
	}

	return values, path, faults.OrNil()
}

// dataFolder is where data goes if nothing is said.
func dataFolder(env cli.Env) (string, error) {
	if dir, ok := env.LookupEnv("XDG_DATA_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "trainyard"), nil
	}

	home, err := os.UserHomeDir()
	if err != nil {
		return "", fault.New(fault.Invalid, "no_home", "cannot find the user's home folder: %v", err).
			WithRemedy("say where data goes with --data")
	}

	return filepath.Join(home, ".local", "share", "trainyard"), nil
}

// logger returns the log that the configuration asks for.
func (c *config) logger(env cli.Env) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.logLevel}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(env.Stderr, opts))
	}

	return slog.New(slog.NewTextHandler(env.Stderr, opts))
}
